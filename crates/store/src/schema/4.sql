-- What an attempt printed as metrics.
CREATE TABLE metric (
    task INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    name TEXT NOT NULL,
    last REAL NOT NULL,
    lowest REAL NOT NULL,
    highest REAL NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (task, attempt, name)
) STRICT, WITHOUT ROWID;
