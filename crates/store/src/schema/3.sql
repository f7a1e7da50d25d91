-- What a task asks for besides its command: its specification as JSON, or NULL if
-- there is nothing else. It replaces the columns name, gpus, cores, priority,
-- retries, time_limit, vram, cpu, ram, model, signature and folder. Those stay and
-- are no longer used: a process of version 2 that is still at work writes them.
-- Along with this, `run.settings` becomes the JSON of a run's specification.
ALTER TABLE task ADD COLUMN spec TEXT;

-- Runs that a process of version 2 may still be adding tasks to. Whoever resumes
-- one of them converts those tasks first.
CREATE TABLE version_2_run (id INTEGER PRIMARY KEY) STRICT;
INSERT INTO version_2_run SELECT id FROM run WHERE ended IS NULL;
