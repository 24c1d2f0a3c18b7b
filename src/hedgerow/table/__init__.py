"""The public face of a table: schema, keys to partitions, the synchronous and the asynchronous API. No protocol."""
