CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL,
    started INTEGER NOT NULL, -- times are in microseconds since 1970, UTC
    ended INTEGER,
    exit INTEGER, -- the exit status of its process
    input_complete INTEGER NOT NULL DEFAULT 0,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    cwd BLOB NOT NULL,
    argv BLOB NOT NULL, -- each word with a NUL after it
    settings TEXT NOT NULL
) STRICT;

-- How the tasks of an ended run came out, so that nobody need count them.
CREATE TABLE tally (
    run INTEGER PRIMARY KEY,
    waiting INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    killed INTEGER NOT NULL,
    timed_out INTEGER NOT NULL,
    not_started INTEGER NOT NULL,
    skipped INTEGER NOT NULL
) STRICT;

CREATE TABLE task (
    id INTEGER PRIMARY KEY, -- run << 32 | number
    outcome INTEGER NOT NULL, -- 2 waiting, 3 interrupted, 4 succeeded, 5 failed, 6 killed, 7 timed out, 8 not started, 9 skipped
    detail INTEGER, -- exit status or signal
    words INTEGER NOT NULL, -- 0: command is a line; 1: words, each with a NUL after it
    name TEXT,
    gpus INTEGER, -- thousandths; this and what follows: NULL is the run's default
    cores INTEGER,
    priority INTEGER,
    retries INTEGER,
    time_limit INTEGER, -- milliseconds; 0 is none
    after BLOB, -- task numbers of the same run, four bytes each, little end first
    command BLOB NOT NULL -- last: a long one costs nothing when only the rest is read
) STRICT;

CREATE TABLE attempt (
    task INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    outcome INTEGER, -- NULL while it runs
    detail INTEGER,
    device TEXT,
    message TEXT,
    PRIMARY KEY (task, attempt)
) STRICT, WITHOUT ROWID;
