-- What a task asks for itself, as in version 1: NULL is the run's default.
-- These stand after the command, but cost nothing there while they are NULL:
-- a row's head, which comes first, says which of its columns are.
ALTER TABLE task ADD COLUMN vram INTEGER; -- bytes of each GPU; -1 is what was learned
ALTER TABLE task ADD COLUMN cpu INTEGER; -- thousandths of a core
ALTER TABLE task ADD COLUMN ram INTEGER; -- bytes
ALTER TABLE task ADD COLUMN model TEXT;
ALTER TABLE task ADD COLUMN signature TEXT;
ALTER TABLE task ADD COLUMN folder BLOB;

ALTER TABLE attempt ADD COLUMN peak INTEGER; -- bytes
ALTER TABLE attempt ADD COLUMN note TEXT;

-- How much memory commands of one shape were seen to take, the newest of each
-- shape and GPU model.
CREATE TABLE sample (
    signature TEXT NOT NULL,
    model TEXT NOT NULL,
    at INTEGER NOT NULL,
    task INTEGER NOT NULL, -- run << 32 | number
    attempt INTEGER NOT NULL,
    peak INTEGER NOT NULL, -- bytes of one GPU
    error INTEGER NOT NULL, -- bytes: between two looks it may have been so much more
    duration INTEGER, -- microseconds; NULL if it tells nothing of other runs
    whence INTEGER NOT NULL, -- 1 a run, 2 a probe, 3 out of memory: it would have taken more
    PRIMARY KEY (signature, model, at, task, attempt)
) STRICT, WITHOUT ROWID;

-- GPUs that were taken out because something is wrong with them.
CREATE TABLE drained (
    device TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    run INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Numbers that go on from one run to the next.
CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    next INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
