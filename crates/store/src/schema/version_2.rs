//! What a database of version 2 holds, in the form of version 3: a task's options
//! were columns, and a run's settings a JSON object of their own shape.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use packhorse_model::{
    Ageing, ByteString, Bytes, ConsumedRows, GpuRequest, Grace, InputFile, Milli, Placing,
    PoolSpec, Priority, ProbeSpec, RunId, RunSpec, SourceSpec, SweepSpec, TaskId, TaskSpec,
    TimeLimit, VramRequest,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Deserialize;

use crate::columns::{self, task_key, task_keys};
use crate::{Home, StoreError, database};

/// How many tasks are held in memory at a time.
const PAGE: u32 = 1000;

/// Converts all runs and all tasks.
pub(super) fn convert(db: &Connection) -> rusqlite::Result<()> {
    convert_settings(db)?;
    convert_tasks(db, (i64::MIN, i64::MAX))
}

/// Converts the tasks that a process of version 2 has added to this run since the
/// database became one of version 3. The process must be gone.
pub(crate) fn convert_late_tasks(home: &Home, run: RunId) -> Result<(), StoreError> {
    let failed = |source| home.sqlite_error(source);
    let is_late = |db: Connection| {
        let sql = "SELECT 1 FROM version_2_run WHERE id = ?1";
        db.prepare(sql)?.exists([run.0])
    };
    let Some(db) = database::open_to_read(home)? else {
        return Ok(());
    };
    if !is_late(db).map_err(failed)? {
        return Ok(());
    }
    let db = database::open(home)?;
    let work = || {
        db.execute_batch("BEGIN IMMEDIATE")?;
        convert_tasks(&db, task_keys(run))?;
        db.execute("DELETE FROM version_2_run WHERE id = ?1", [run.0])?;
        db.execute_batch("COMMIT")
    };
    work().map_err(failed)?;
    database::close(db, home)
}

fn convert_tasks(db: &Connection, (first, last): (i64, i64)) -> rusqlite::Result<()> {
    let mut page = db.prepare(
        "SELECT id, name, gpus, cores, priority, retries, time_limit, after, vram, cpu, ram, \
         model, signature, folder FROM task \
         WHERE id > ?1 AND id <= ?2 AND spec IS NULL AND coalesce(name, gpus, cores, priority, \
         retries, time_limit, after, vram, cpu, ram, model, signature, folder) IS NOT NULL \
         ORDER BY id LIMIT ?3",
    )?;
    let mut name = db.prepare("SELECT name FROM task WHERE id = ?1")?;
    let mut update = db.prepare("UPDATE task SET spec = ?2 WHERE id = ?1")?;
    let mut next = first;
    loop {
        let rows = page.query_map(params![next, last, PAGE], task_spec)?;
        let tasks = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let Some((key, ..)) = tasks.last() else {
            return Ok(());
        };
        next = *key;
        for (key, after, mut spec) in tasks {
            for number in after {
                let before = task_key(TaskId::new(columns::task_id(key).run, number));
                let name = name.query_row([before], |row| row.get(0)).optional()?;
                spec.after.extend(name.flatten());
            }
            if !spec.is_plain() {
                update.execute(params![key, columns::json(&spec)])?;
            }
        }
    }
}

/// A task's key, the numbers of the tasks it comes after, and what its columns say.
fn task_spec(row: &Row<'_>) -> rusqlite::Result<(i64, Vec<u32>, TaskSpec)> {
    let after = row.get_ref("after")?.as_blob_or_null()?;
    let gpus: Option<i64> = row.get("gpus")?;
    let priority: Option<i32> = row.get("priority")?;
    let time_limit: Option<i64> = row.get("time_limit")?;
    let vram: Option<i64> = row.get("vram")?;
    let cpu: Option<u32> = row.get("cpu")?;
    let ram: Option<i64> = row.get("ram")?;
    let folder: Option<Vec<u8>> = row.get("folder")?;
    let spec = TaskSpec {
        name: row.get("name")?,
        gpus: gpus.and_then(gpu_request),
        cores: row.get("cores")?,
        priority: priority.map(Priority),
        retries: row.get("retries")?,
        timeout: time_limit.map(|millis| match u64::try_from(millis) {
            Ok(millis @ 1..) => TimeLimit::After(Duration::from_millis(millis)),
            _ => TimeLimit::Never,
        }),
        vram: vram.map(|bytes| match bytes {
            ..0 => VramRequest::Auto,
            bytes => VramRequest::Bytes(columns::bytes(bytes)),
        }),
        cpu: cpu.map(Milli),
        ram: ram.map(columns::bytes),
        gpu_model: row.get("model")?,
        signature: row.get("signature")?,
        folder: folder.map(columns::path),
        ..TaskSpec::default()
    };
    let after = after.map(columns::after).unwrap_or_default();
    Ok((row.get("id")?, after, spec))
}

/// What a number of thousandths asks for. Below 0 it is a place on a GPU where
/// memory alone decides, which is what a task with a need of memory gets anyway.
fn gpu_request(milli: i64) -> Option<GpuRequest> {
    let whole = i64::from(Milli::ONE.0);
    Some(match u32::try_from(milli).ok()? {
        0 => GpuRequest::None,
        share if milli < whole => GpuRequest::Share(Milli(share)),
        _ => GpuRequest::Whole(u32::try_from(milli / whole).unwrap_or(u32::MAX)),
    })
}

fn convert_settings(db: &Connection) -> rusqlite::Result<()> {
    let mut runs = db.prepare("SELECT id FROM run")?;
    let runs = runs.query_map([], |row| row.get::<_, i64>(0))?;
    let runs: Vec<i64> = runs.collect::<rusqlite::Result<_>>()?;
    let mut read = db.prepare("SELECT settings FROM run WHERE id = ?1")?;
    let mut update = db.prepare("UPDATE run SET settings = ?2 WHERE id = ?1")?;
    for run in runs {
        let settings: String = read.query_row([run], |row| row.get(0))?;
        // What cannot be read stays: whoever resumes the run is told.
        if let Some(spec) = run_spec(&settings) {
            update.execute(params![run, columns::json(&spec)])?;
        }
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OldRunSettings {
    /// What has the same name in both.
    #[serde(flatten)]
    pool: PoolSpec,
    spread: bool,
    no_leases: bool,
    ageing_ms: Option<u64>,
    gpus_per_task: Option<GpuRequest>,
    vram: Option<VramRequest>,
    probe: Option<String>,
    signature: Option<String>,
    gpu_model: Option<String>,
    ram: Option<Bytes>,
    cpu: Option<u32>,
    cores: Option<u32>,
    retries: Option<u32>,
    timeout_ms: Option<u64>,
    grace_ms: u64,
    null: bool,
    files: Vec<InputFile>,
    csv: Option<Csv>,
    sweep: Option<SweepSpec>,
}

#[derive(Deserialize)]
struct Csv {
    num: NonZeroU32,
    probe_epochs: u32,
    consume: Option<Consumed>,
}

#[derive(Deserialize)]
struct Consumed {
    path: PathBuf,
    header: String,
    rows: Vec<Vec<u8>>,
}

fn run_spec(settings: &str) -> Option<RunSpec> {
    let settings: OldRunSettings = serde_json::from_str(settings).ok()?;
    let limit = |millis: u64| TimeLimit::After(Duration::from_millis(millis.max(1)));
    let mut probe = settings.probe.map(ProbeSpec::Template);
    let mut batch = None;
    let source = if let Some(sweep) = settings.sweep {
        SourceSpec::Sweep(sweep)
    } else if let Some(csv) = settings.csv {
        batch = Some(csv.num);
        if csv.probe_epochs > 0 {
            probe = Some(ProbeSpec::Epochs(csv.probe_epochs));
        }
        SourceSpec::Csv {
            consume: csv.consume.map(|file| ConsumedRows {
                path: file.path,
                header: file.header,
                rows: file.rows.into_iter().map(ByteString).collect(),
            }),
        }
    } else {
        SourceSpec::Lines { files: settings.files, null: settings.null }
    };
    Some(RunSpec {
        defaults: TaskSpec {
            gpus: settings.gpus_per_task,
            vram: settings.vram,
            probe,
            signature: settings.signature,
            gpu_model: settings.gpu_model,
            ram: settings.ram,
            cpu: settings.cpu.map(Milli),
            cores: settings.cores,
            retries: settings.retries,
            timeout: settings.timeout_ms.map(limit),
            grace: Some(settings.grace_ms)
                .filter(|millis| *millis > 0)
                .map(|millis| Grace(Duration::from_millis(millis))),
            ..TaskSpec::default()
        },
        pool: PoolSpec {
            place: Some(if settings.spread { Placing::Spread } else { Placing::Pack }),
            leases: settings.no_leases.then_some(false),
            ageing: settings.ageing_ms.map(|millis| match millis {
                0 => Ageing::Off,
                millis => Ageing::After(Duration::from_millis(millis)),
            }),
            ..settings.pool
        },
        source,
        batch,
        ..RunSpec::default()
    })
}

#[cfg(test)]
mod tests;
