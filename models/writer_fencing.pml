/*
 * Writer fencing on an object store: who may add a row, and can an acknowledged row be lost?
 *
 * One partition. Its write-ahead log (WAL) is a row of numbered slots; a slot is filled by "create if absent". Its
 * manifest holds the writer epoch and the replay point: what lies at or below the replay point is in the levels. Some
 * writers take the partition over from one another, a compactor moves the replay point, a collector deletes what the
 * levels hold, and in some configurations a reader reads.
 *
 * Every request to the store is ONE atomic step, and between two steps anything may happen. No process is ever obliged
 * to move, so each may stall anywhere, for ever or until the worst moment: that is the zombie. Where two requests are
 * modelled as one step, a comment says why nothing is lost by it.
 *
 * Sizes and faults are chosen with -D flags. run.py knows them all, README.md explains them.
 */

/* ============================================================================================== sizes and faults */

#ifndef WRITERS
#define WRITERS    3            /* each takes the partition over once */
#endif
#ifndef ROWS
#define ROWS       2            /* rows each writer wants to write, 1 to 3 */
#endif
#ifndef PARALLEL
#define PARALLEL   1            /* max_parallel_writes: slots in flight, and fences that make a run whole */
#endif
#ifndef SLOTS
#define SLOTS      10           /* slots of the log, 8 to 16; who would need one more stalls */
#endif
#ifndef COMPACTORS
#define COMPACTORS 1
#endif

/* Each fault takes one safeguard away. These two take several. */
#ifdef SPEC
#define COLLECT_FENCES          /* the protocol before there were any safeguards */
#define NO_RECHECK
#define NOTE_AFTER_CLAIM
#endif
#ifdef NO_RECHECK
#define NO_EPOCH_RECHECK
#define FENCE_BELOW_REPLAY_COUNTS
#endif

/* ============================================================================================== the store */

/* What a slot holds, in one byte: nothing, the fence of an epoch, or a row. A row's number tells the epoch that wrote
 * it, and stands for its unique write id. */
#define ABSENT          0
#define FENCE(epoch)    (epoch)
#define DATA(row)       (WRITERS + 1 + (row))
#define IS_FENCE(held)  ((held) != ABSENT && (held) <= WRITERS)
#define IS_DATA(held)   ((held) > WRITERS)
#define ROW_OF(held)    ((held) - WRITERS - 1)
#define EPOCH_OF(held)  (IS_FENCE(held) -> (held) : 1 + ROW_OF(held) / ROWS)

#define BIT(number)     (1 << (number))         /* sets of rows, and of slots, are bits in an int */
#define EVERY_ROW       (BIT(WRITERS * ROWS) - 1)

byte wal[SLOTS + 1];            /* slot 0 is never used: replay point 0 means that nothing was carried yet */

/* The manifest: one record, replaced as a whole by compare-and-swap. */
byte manifest_epoch;            /* the newest writer epoch */
byte manifest_replay_point;     /* the last slot whose content is in the levels */
byte manifest_parallel = PARALLEL;
int  manifest_levels;           /* the rows in the levels */
int  manifest_data_slots;       /* the slots that held rows, not fences, when they were carried */
byte manifest_fence_epoch;      /* the newest epoch whose run of fences was whole when it was carried */

byte fences_of[WRITERS + 1];    /* a fence says how many make its run whole: the same for all fences of an epoch */

/* ============================================================================================== the properties */

/* Ghosts. Nobody in the protocol can see them; they exist to say what must hold. */
int  acknowledged;              /* rows whose writer was told "durable" */
int  refused;                   /* rows whose writer was told "certainly not written" */
int  late;                      /* rows created after a newer owner's fences stood and had been checked again */
int  visible;                   /* rows a recovery would find right now */
byte standing_epoch;            /* the newest epoch whose fences stood and had been checked again */
#ifdef READER
byte slot_of_row[WRITERS * ROWS];
#endif

/* Scratch for one step; `hidden` keeps it out of the state. */
hidden byte scan, other, run_length, run_epoch, ignore_below, data_epoch, in_flight, waits, cuts_a_run;
hidden int  rows_read;
hidden byte durable, fenced, stable, truthful, monotone, no_gap, prefix, fresh, nothing_ignored, nothing_in_the_way;
hidden byte not_all_acknowledged, no_stray_fence;

/*
 * How everybody reads the log: the unbroken prefix above the replay point, here up to slot `last`. A row older than a
 * whole run of fences below it is ignored. Nothing at or below the replay point is looked at, so a fence there counts
 * for nothing; those that stood when the replay point passed them live on in the manifest.
 */
inline read_prefix(last)
{
	rows_read = manifest_levels;
	run_length = 0; run_epoch = 0; data_epoch = 0;
	ignore_below = manifest_fence_epoch;
#ifdef READER_COUNTS_FENCES_BELOW_REPLAY
	scan = 1;
	do
	:: scan <= manifest_replay_point -> count_fence(wal[scan], run_epoch, run_length, ignore_below); scan++
	:: else -> break
	od;
#endif
	scan = manifest_replay_point + 1;
	do
	:: scan <= last && wal[scan] != ABSENT ->
		count_fence(wal[scan], run_epoch, run_length, ignore_below);
		if
		:: IS_FENCE(wal[scan]) -> skip
#ifndef IGNORE_NOTHING
		:: IS_DATA(wal[scan]) && EPOCH_OF(wal[scan]) < ignore_below -> nothing_ignored = false
#endif
		:: else ->
			rows_read = rows_read | BIT(ROW_OF(wal[scan]));
			monotone = monotone && EPOCH_OF(wal[scan]) >= data_epoch;
			data_epoch = EPOCH_OF(wal[scan])
		fi;
		scan++
	:: else -> break
	od
}

/* `epoch`, `length`: the run of fences that ends here. `floor`: the newest epoch with a whole run so far. */
inline count_fence(held, epoch, length, floor)
{
	if
	:: IS_FENCE(held) && held == epoch -> length++
	:: IS_FENCE(held) && held != epoch -> epoch = held; length = 1
	:: else -> epoch = 0; length = 0
	fi;
	if
	:: epoch > floor && length >= fences_of[epoch] -> floor = epoch
	:: else -> skip
	fi
}

/* Looked at after every step that changes anything: the properties hold in every state, not only at the end. */
inline check_properties()
{
	monotone = true; nothing_ignored = true;
	read_prefix(SLOTS);
	stable = (visible & ~rows_read) == 0;
	visible = rows_read;
	durable = (acknowledged & ~visible) == 0;
	fenced = (late & (visible | acknowledged)) == 0;
	truthful = (refused & visible) == 0;
	assert(durable);                /* an acknowledged row is never lost */
	assert(fenced);                 /* what a zombie creates is neither visible nor acknowledged */
	assert(truthful);               /* a row called "certainly not written" never shows up */
	assert(stable);                 /* what was visible once stays visible */
	assert(monotone);               /* along the visible history, epochs only rise */
#ifdef EXPECT_NOTHING_IGNORED
	assert(nothing_ignored);        /* not a promise of the protocol: it shows that ignoring is a second line of defence */
#endif
#ifdef WITNESS_ALL_ACKNOWLEDGED
	not_all_acknowledged = !(acknowledged == EVERY_ROW && manifest_levels == EVERY_ROW);
	assert(not_all_acknowledged);   /* expected to fail: the bounds are wide enough for everybody to finish */
#endif
}

/* ============================================================================================== writers */

mtype = { noting, claiming, fencing, rechecking, listing_again, lowering, writing, halted };    /* phases of a writer */
mtype = { unsent, sent, created, finished, failed };                            /* states of a row */

#ifdef NOTE_AFTER_CLAIM
#define FIRST_PHASE     claiming
#define AFTER_NOTING    fencing
#define AFTER_CLAIM     noting
#define MAY_NOTE        true
#define NOTHING_CHANGED true
#else
#define FIRST_PHASE     noting
#define AFTER_NOTING    claiming
#define AFTER_CLAIM     fencing
#define MAY_NOTE        MY_TURN
#define NOTHING_CHANGED (manifest_replay_point == seen_replay_point)
#endif

/* Writers differ only in when they take over, so they are numbered in the order in which their claims succeed: the
 * writer `me` claims epoch `me`. A claim that fails leaves no trace in the store, so this loses nothing. */
#ifdef TAKEOVERS_DO_NOT_OVERLAP
#define MY_TURN         (manifest_epoch == me - 1 && standing_epoch == me - 1)
#else
#define MY_TURN         (manifest_epoch == me - 1)
#endif

#ifdef ONE_FENCE_FOR_K2
#define FENCES_WRITTEN  1
#else
#define FENCES_WRITTEN  fences_of[me]
#endif

#ifdef NO_EPOCH_RECHECK
#define STILL_OURS      true
#else
#define STILL_OURS      (manifest_epoch == me)
#endif

#ifdef FENCE_BELOW_REPLAY_COUNTS
#define FENCES_COUNT    true
#else
#define FENCES_COUNT    (lowest_fence > manifest_replay_point)
#endif

#if defined(LOWER_PARALLEL) || defined(LOWER_BEFORE_FENCES)
#define WINDOW          (me == 2 -> 1 : fences_of[me])
#elif defined(RAISE_PARALLEL)
#define WINDOW          (me == 2 -> 2 : fences_of[me])
#elif defined(ONE_WRITE_TOO_MANY)
#define WINDOW          (fences_of[me] + 1)
#else
#define WINDOW          fences_of[me]
#endif

/* Where fences are collected too, a create proves nothing by itself: look at the manifest after it, and send nothing
 * before that. The look is part of the step: whoever passes it later would have passed it at once. */
#if defined(LOOK_AT_EPOCH_AND_REPLAY_POINT)
#define LOOK_FAILS(row) (manifest_epoch != me || slot_of[row] <= manifest_replay_point)
#elif defined(LOOK_AT_EPOCH)
#define LOOK_FAILS(row) (manifest_epoch != me)
#else
#define LOOK_FAILS(row) false
#endif

#define NUMBER(row)     ((me - 1) * ROWS + (row))

inline find_first_open_slot()
{
	position = manifest_replay_point + 1;
	do
	:: position <= SLOTS && wal[position] != ABSENT -> position++
	:: else -> break
	od
}

/* Read the manifest, list the log, note the first open slot. One step is enough: the claim that follows succeeds only
 * if the manifest did not change meanwhile, and then it makes no difference when it was read. */
inline note_first_open_slot()
{
	seen_replay_point = manifest_replay_point;
	find_first_open_slot();
	printf("writer %d reads the manifest and notes slot %d\n", me, position);
	phase = AFTER_NOTING
}

/* The compare-and-swap. It fails if anything changed since the manifest was read; then read and note again. */
inline claim_epoch()
{
	if
	:: NOTHING_CHANGED ->
		assert(me > manifest_epoch);            /* epochs only rise */
		manifest_epoch = me;
		printf("writer %d claims epoch %d\n", me, me);
		fences_of[me] = manifest_parallel;      /* as it was: who came before may have as many in flight */
#if defined(LOWER_BEFORE_FENCES)
		manifest_parallel = (me == 2 -> 1 : manifest_parallel);
#elif defined(RAISE_PARALLEL)
		manifest_parallel = (me == 2 -> 2 : manifest_parallel);
#endif
		phase = AFTER_CLAIM
	:: else ->
		printf("writer %d finds that the manifest has changed\n", me);
		phase = noting;
		position = 0
	fi;
	seen_replay_point = 0;
	check_properties()
}

/* One step of the walk: create a fence in the slot at hand, and see which of the four outcomes it is. */
inline create_fence()
{
	if
	:: wal[position] == ABSENT -> put_fence(); count_own_fence()
	:: wal[position] == FENCE(me) -> count_own_fence()      /* from an earlier try or an earlier walk: success */
	:: else ->
		if
		:: EPOCH_OF(wal[position]) < me ->              /* an older writer was faster: begin a new run above */
			printf("writer %d steps over slot %d\n", me, position);
#ifndef SCATTERED_FENCES
			own_fences = 0; lowest_fence = 0
#endif
		:: else -> halt()                               /* a newer writer was here: we are fenced */
		fi
	fi;
	if
	:: phase == fencing ->
		position++;
		phase = (own_fences == FENCES_WRITTEN -> rechecking : fencing)
	:: else -> skip
	fi;
	check_properties()
}

inline put_fence()
{
#ifdef WITNESS_STRAY_FENCE
	no_stray_fence = position > manifest_replay_point;
	assert(no_stray_fence);         /* expected to fail: a slow walker does reach slots that were collected */
#endif
	wal[position] = FENCE(me);
	printf("writer %d creates a fence in slot %d\n", me, position)
}

inline count_own_fence()
{
	lowest_fence = (own_fences == 0 -> position : lowest_fence);
	own_fences++
}

/* All fences stand. Read the manifest once more: still ours, and did the fences land above the replay point? A walk
 * that was too slow drops them into slots that were collected long ago, where they stop nobody. */
inline recheck_manifest()
{
	if
	:: !STILL_OURS -> halt()
	:: STILL_OURS && !FENCES_COUNT ->
		printf("writer %d finds its fences below the replay point, and walks again\n", me);
		own_fences = 0; lowest_fence = 0;
#ifdef WALK_AGAIN_FROM_LISTING
		phase = listing_again; position = 0
#else
		phase = fencing; position = manifest_replay_point + 1
#endif
	:: STILL_OURS && FENCES_COUNT ->
		printf("writer %d owns the partition\n", me);
		own_fences = 0; lowest_fence = 0;
		standing_epoch = (me > standing_epoch -> me : standing_epoch);
#ifdef LOWER_PARALLEL
		phase = (me == 2 -> lowering : writing);
#else
		phase = writing;
#endif
		settle()
	fi;
	check_properties()
}

/* An owner whose fences for the old number stand lowers max_parallel_writes. One step for read and swap: a swap that
 * fails changes nothing, and is tried again. */
inline lower_parallel()
{
	if
	:: manifest_epoch == me ->
		manifest_parallel = 1;
		printf("writer %d lowers max_parallel_writes to 1\n", me);
		phase = writing;
		settle()
	:: else -> halt()
	fi;
	check_properties()
}

/* Send nothing more. What is in flight stays in flight, and may still be created. */
inline halt()
{
	printf("writer %d stops: it is fenced\n", me);
	phase = halted;
	position = 0; own_fences = 0; lowest_fence = 0
}

/* The create of one row. Its slot was fixed when it was sent, so trying again means trying the same slot. */
inline create_row(row)
{
	if
	:: wal[slot_of[row]] == ABSENT -> put_row(row); see_row_stand(row)
	:: wal[slot_of[row]] == DATA(NUMBER(row)) -> see_row_stand(row)         /* read back, and it is ours: success */
	:: else ->
		if
		:: EPOCH_OF(wal[slot_of[row]]) < me && phase == writing ->      /* an older writer's object: step over it */
#ifdef EXPECT_NOTHING_IGNORED
			nothing_in_the_way = false;
			assert(nothing_in_the_way);
#endif
			slot_of[row] = position;
			position++
		:: else ->
			refuse(row);
			state_of[row] = failed;
			halt()
		fi
	fi;
	settle();
	check_properties()
}

inline put_row(row)
{
	wal[slot_of[row]] = DATA(NUMBER(row));
	printf("writer %d creates row %d in slot %d\n", me, NUMBER(row), slot_of[row]);
	/* To create again what was carried long ago adds nothing, so it is not late. */
	late = (me < standing_epoch && !(visible & BIT(NUMBER(row))) -> late | BIT(NUMBER(row)) : late);
#ifdef READER
	slot_of_row[NUMBER(row)] = slot_of[row]
#endif
}

inline see_row_stand(row)
{
	if
	:: LOOK_FAILS(row) -> state_of[row] = failed; halt()
	:: else -> state_of[row] = created
	fi
}

/* A newer object holds the slot. Was our row never written? Only if the slot was never collected: the object may be a
 * slow walker's fence, in the hole that our own row left behind. So "certainly not" takes a look at the manifest;
 * otherwise the outcome is unknown, and the caller is told so. */
inline refuse(row)
{
#ifdef REFUSE_WITHOUT_LOOK
	refused = refused | BIT(NUMBER(row))
#else
	refused = (slot_of[row] > manifest_replay_point -> refused | BIT(NUMBER(row)) : refused)
#endif
}

/*
 * What follows from a response: acknowledge what may be acknowledged, then send what may be sent, both as early as
 * allowed. That hides nothing: a later acknowledgement promises less, and a later send is one that stalls on its way.
 */
inline settle()
{
	acknowledge(0);
#if ROWS > 1
	acknowledge(1);
#endif
#if ROWS > 2
	acknowledge(2);
#endif
	in_flight = 0;
	other = 0;
	do
	:: other < ROWS -> in_flight = in_flight + (state_of[other] == sent -> 1 : 0); other++
	:: else -> break
	od;
	other = 0;
	do
	:: other < ROWS ->
		if
		:: phase == writing && state_of[other] == unsent && in_flight < WINDOW && position <= SLOTS ->
			state_of[other] = sent; slot_of[other] = position;
			position++; in_flight++
		:: else -> skip
		fi;
		other++
	:: else -> break
	od
}

/* In slot order only: a row waits while a lower slot of its writer is in flight or lost. */
inline acknowledge(row)
{
	if
	:: state_of[row] == created ->
		waits = false;
#ifndef ACK_OUT_OF_ORDER
		other = 0;
		do
		:: other < ROWS ->
			waits = waits || slot_of[other] < slot_of[row] && (state_of[other] == sent || state_of[other] == failed);
			other++
		:: else -> break
		od;
#endif
		if
		:: !waits ->
			printf("writer %d acknowledges row %d in slot %d\n", me, NUMBER(row), slot_of[row]);
			no_gap = true;
			scan = manifest_replay_point + 1;
			do
			:: scan <= slot_of[row] -> no_gap = no_gap && wal[scan] != ABSENT; scan++
			:: else -> break
			od;
			assert(no_gap);                         /* nothing is acknowledged above a gap */
			acknowledged = acknowledged | BIT(NUMBER(row));
			state_of[row] = finished; slot_of[row] = 0
		:: else -> skip
		fi
	:: else -> skip
	fi
}

/* A lost response: the object stands, and its writer does not know. It will try again, and find it there, or not. */
#ifdef LOST_RESPONSES
#define CREATE_ROW(row) \
	:: d_step { state_of[row] == sent && slot_of[row] <= SLOTS -> create_row(row) } \
	:: d_step { state_of[row] == sent && slot_of[row] <= SLOTS && wal[slot_of[row]] == ABSENT -> \
		put_row(row); check_properties() }
#else
#define CREATE_ROW(row) \
	:: d_step { state_of[row] == sent && slot_of[row] <= SLOTS -> create_row(row) }
#endif

active [WRITERS] proctype Writer()
{
	byte  me = _pid + 1;
	mtype phase = FIRST_PHASE;
	byte  seen_replay_point;
	byte  position;                 /* the slot at hand; once writing, the next slot to send to */
	byte  own_fences;               /* how many fences of the present run stand */
	byte  lowest_fence;             /* and where it began */
	mtype state_of[ROWS] = unsent;
	byte  slot_of[ROWS];

end:	do
	:: d_step { phase == noting && MAY_NOTE -> note_first_open_slot() }
	:: d_step { phase == claiming && (MY_TURN || FIRST_PHASE == noting) -> claim_epoch() }
	:: d_step { phase == fencing && position <= SLOTS -> create_fence() }
#ifdef LOST_RESPONSES
	:: d_step { phase == fencing && position <= SLOTS && wal[position] == ABSENT -> put_fence(); check_properties() }
#endif
	:: d_step { phase == rechecking -> recheck_manifest() }
#ifdef WALK_AGAIN_FROM_LISTING
	:: d_step { phase == listing_again -> find_first_open_slot(); phase = fencing }
#endif
#ifdef LOWER_PARALLEL
	:: d_step { phase == lowering -> lower_parallel() }
#endif
	CREATE_ROW(0)
#if ROWS > 1
	CREATE_ROW(1)
#endif
#if ROWS > 2
	CREATE_ROW(2)
#endif
	od
}

/* ============================================================================================== compactor */

/* A run of fences that may still grow is not cut in two: `target` is no good if its run is not whole at that point,
 * and either goes on or ends the log. */
inline see_whether_target_cuts_a_run()
{
	cuts_a_run = false;
#ifndef CUT_RUNS
	run_length = 0;
	scan = target;
	do
	:: scan > manifest_replay_point && IS_FENCE(wal[scan]) && wal[scan] == wal[target] -> run_length++; scan--
	:: else -> break
	od;
	if
	:: IS_FENCE(wal[target]) ->
		cuts_a_run = run_length < fences_of[wal[target]] &&
			(target == SLOTS || wal[target + 1] == ABSENT || wal[target + 1] == wal[target])
	:: else -> skip
	fi
#endif
}

#ifdef KEEP_IGNORED_ROWS
#define MAY_BE_COLLECTED(held) (IS_DATA(held) && (rows_read & BIT(ROW_OF(held))))
#else
#define MAY_BE_COLLECTED(held) IS_DATA(held)
#endif

/* What a pass will publish: the rows a reader sees up to `target`, and which of the slots held rows. */
inline prepare_pass()
{
	seen_epoch = manifest_epoch;
	seen_replay_point = manifest_replay_point;
	read_prefix(target);
	carried_rows = rows_read;
#ifndef FORGET_FENCE_EPOCH
	fence_epoch = ignore_below;
#endif
	carried_slots = manifest_data_slots;
	scan = manifest_replay_point + 1;
	do
	:: scan <= target -> carried_slots = (MAY_BE_COLLECTED(wal[scan]) -> carried_slots | BIT(scan) : carried_slots); scan++
	:: else -> break
	od
}

/* The compare-and-swap that publishes it. */
inline publish_pass()
{
	if
	:: manifest_epoch == seen_epoch && manifest_replay_point == seen_replay_point ->
		manifest_replay_point = target;
		manifest_levels = carried_rows;
		manifest_data_slots = carried_slots;
		manifest_fence_epoch = fence_epoch;
		printf("the compactor moves the replay point to %d\n", target)
	:: else -> skip                                 /* the manifest changed: the pass was for nothing */
	fi;
	target = 0; seen_epoch = 0; seen_replay_point = 0; fence_epoch = 0; carried_rows = 0; carried_slots = 0;
	check_properties()
}

/*
 * A pass reads an unbroken prefix of any length, then publishes it. Usually one step does both: slots above the replay
 * point are neither changed nor deleted, so what was read stays true, and a pass that loses the race for the manifest
 * leaves no trace. STALLING_COMPACTOR takes two steps, to check this very argument.
 */
active [COMPACTORS] proctype Compactor()
{
	byte target, seen_epoch, seen_replay_point, fence_epoch;
	int  carried_rows, carried_slots;

end:	do
	:: atomic {
		target == 0 && manifest_replay_point < SLOTS && wal[manifest_replay_point + 1] != ABSENT ->
		target = manifest_replay_point + 1;
		do
		:: target < SLOTS && wal[target + 1] != ABSENT -> target++
		:: break
		od;
		d_step {
			see_whether_target_cuts_a_run();
			if
			:: cuts_a_run -> target = 0
			:: else ->
				prepare_pass();
#ifndef STALLING_COMPACTOR
				publish_pass()
#endif
			fi
		}
	   }
#ifdef STALLING_COMPACTOR
	:: d_step { target != 0 -> publish_pass() }
#endif
	od
}

/* ============================================================================================== collector */

/* It deletes, one object at a time and in any order, what the manifest says was a row and has been carried. It goes by
 * what the manifest recorded, not by what the slot holds by now: a delete may arrive late, or twice. */
#if defined(SPEC)
#define COLLECTABLE(slot) ((slot) < manifest_replay_point)
#elif defined(COLLECT_FENCES)
#define COLLECTABLE(slot) ((slot) <= manifest_replay_point)
#else
#define COLLECTABLE(slot) ((manifest_data_slots & BIT(slot)) != 0)
#endif

#define COLLECT(slot) \
	:: d_step { wal[slot] != ABSENT && COLLECTABLE(slot) -> \
		wal[slot] = ABSENT; printf("the collector deletes slot %d\n", slot); check_properties() }

active proctype Collector()
{
end:	do
	COLLECT(1) COLLECT(2) COLLECT(3) COLLECT(4) COLLECT(5) COLLECT(6) COLLECT(7) COLLECT(8)
#if SLOTS > 8
	COLLECT(9)
#endif
#if SLOTS > 9
	COLLECT(10)
#endif
#if SLOTS > 10
	COLLECT(11)
#endif
#if SLOTS > 11
	COLLECT(12)
#endif
#if SLOTS > 12
	COLLECT(13)
#endif
#if SLOTS > 13
	COLLECT(14)
#endif
#if SLOTS > 14
	COLLECT(15)
#endif
#if SLOTS > 15
	COLLECT(16)
#endif
	od
}

/* ============================================================================================== reader */

#ifdef READER

mtype = { starting, listing, getting, confirming };     /* phases of a reader */

#if defined(READER_TRUSTS_TAIL)
#define MUST_CONFIRM    false
#elif defined(READER_CONFIRMS_FENCES)
#define MUST_CONFIRM    met_a_fence
#else
#define MUST_CONFIRM    true
#endif

inline get_slot()
{
	if
	:: IS_FENCE(wal[position]) -> printf("the reader gets slot %d: a fence of epoch %d\n", position, wal[position])
	:: else -> printf("the reader gets slot %d: row %d\n", position, ROW_OF(wal[position]))
	fi;
	count_fence(wal[position], fence_epoch, fence_count, floor);
	met_a_fence = met_a_fence || IS_FENCE(wal[position]);
	if
	:: IS_DATA(wal[position]) && EPOCH_OF(wal[position]) >= floor -> view = view | BIT(ROW_OF(wal[position]))
	:: else -> skip
	fi;
	position++;
	phase = (position <= last -> getting : confirming)
}

/* A view is a prefix of the history, and (if every read is confirmed) holds what was acknowledged before it began. */
inline check_view()
{
	printf("the reader returns its rows\n");
	prefix = true;
	scan = 0;
	do
	:: scan < WRITERS * ROWS ->
		other = 0;
		do
		:: other < WRITERS * ROWS ->
			prefix = prefix && !((view & BIT(scan)) && (visible & BIT(other)) && !(view & BIT(other)) &&
				slot_of_row[other] < slot_of_row[scan]);
			other++
		:: else -> break
		od;
		scan++
	:: else -> break
	od;
	assert(prefix);
#if !defined(READER_TRUSTS_TAIL) && !defined(READER_CONFIRMS_FENCES)
	fresh = (owed & ~view) == 0;
	assert(fresh);
#endif
}

inline start_over()
{
	phase = starting;
	seen_replay_point = 0; position = 0; last = 0; view = 0; owed = 0;
	fence_epoch = 0; fence_count = 0; floor = 0; met_a_fence = false
}

/*
 * A reader that takes its time: the manifest, a listing, then slot after slot. Nothing is pinned for it, or the pin has
 * expired. A listed slot that vanished sends it back to the manifest. That alone is not enough: a slot may have been
 * collected and filled again, by a slow walker's fence, and then it looks perfectly in order. So at the end the reader
 * reads the manifest once more, and starts over if the replay point moved.
 */
active proctype Reader()
{
	mtype phase = starting;
	byte  seen_replay_point, position, last;
	int   view;                                     /* the rows it will return */
	int   owed;                                     /* what was acknowledged before it began */
	byte  fence_epoch, fence_count, floor;          /* as in read_prefix, but kept from step to step */
	bool  met_a_fence;

end:	do
	:: d_step { phase == starting ->
		seen_replay_point = manifest_replay_point;
		view = manifest_levels;
		floor = manifest_fence_epoch;
		owed = acknowledged;
		printf("the reader reads the manifest: replay point %d\n", seen_replay_point);
		phase = listing
	   }
	:: d_step { phase == listing ->
		last = seen_replay_point;
		do
		:: last < SLOTS && wal[last + 1] != ABSENT -> last++
		:: else -> break
		od;
		printf("the reader lists the log: unbroken up to %d\n", last);
		position = seen_replay_point + 1;
		phase = (position <= last -> getting : confirming)
	   }
	:: d_step { phase == getting ->
		if
		:: wal[position] == ABSENT -> start_over()
		:: else -> get_slot()
		fi
	   }
	:: d_step { phase == confirming ->
		if
		:: MUST_CONFIRM && manifest_replay_point != seen_replay_point -> start_over()
		:: else -> check_view(); start_over()
		fi
	   }
	od
}

#endif
