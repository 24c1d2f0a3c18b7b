"""The command line: parsing, printing and progress around the library's public API."""
