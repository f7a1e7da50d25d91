-- Values of metrics may be NULL: that is NaN, which SQLite does not keep as a number.
-- Infinity is a number to it.
CREATE TABLE metric_5 (
    task INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    name TEXT NOT NULL,
    last REAL,
    lowest REAL,
    highest REAL,
    count INTEGER NOT NULL,
    PRIMARY KEY (task, attempt, name)
) STRICT, WITHOUT ROWID;
INSERT INTO metric_5 SELECT * FROM metric;
DROP TABLE metric;
ALTER TABLE metric_5 RENAME TO metric;
