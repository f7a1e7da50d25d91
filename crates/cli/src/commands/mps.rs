use std::io::Write as _;
use std::time::Duration;

use anyhow::bail;
use packhorse_gpu::mps::{Daemon, DaemonFolder, DaemonStatus, Ownership, SharedDaemon};
use packhorse_gpu::{Driver, GpuConfig, GpuError, Vendor};
use packhorse_model::Exit;
use packhorse_session::ask_driver;
use packhorse_store::Home;
use serde_json::{Value, json};

use super::gpus::is_called;
use super::launch::find_settings;
use super::table::{print_json, print_table, table};
use crate::args::MpsVerb;
use crate::stdout::stdout;
use crate::{complain, wording};

/// How long clients have to leave when a daemon is ended.
const QUIT_TIME: Duration = Duration::from_secs(2);

/// `packhorse mps`
pub fn mps(verb: &MpsVerb) -> anyhow::Result<Exit> {
    let config = find_settings()?.gpu_config();
    match verb {
        MpsVerb::Start { gpus } => start(&config, &find(&config, gpus)?),
        MpsVerb::Stop { gpus, force } => stop(&config, &find(&config, gpus)?, *force),
        MpsVerb::Status { json } => status(&config, &find(&config, &[])?, *json),
    }
}

/// A GPU and the folder of its daemon.
struct Gpu {
    index: u32,
    uuid: String,
    folder: DaemonFolder,
}

/// The GPUs that are meant.
fn find(config: &GpuConfig, wanted: &[String]) -> anyhow::Result<Vec<Gpu>> {
    let home = Home::locate()?;
    let (vendor, devices) = ask_driver(config, &mut complain, |config| {
        let driver = Driver::detect(config)?;
        Ok::<_, GpuError>((driver.vendor(), driver.devices()?))
    })??;
    if vendor == Some(Vendor::Amd) {
        bail!("MPS is NVIDIA's, and these GPUs are AMD's");
    }
    let wanted: Vec<&str> = wanted
        .iter()
        .flat_map(|ids| ids.split(','))
        .filter(|id| !id.is_empty() && *id != "all")
        .collect();
    for id in &wanted {
        if !devices.iter().any(|device| is_called(device, id)) {
            bail!("there is no GPU {id}\nhint: `packhorse gpus` lists them");
        }
    }
    let chosen = devices
        .iter()
        .filter(|device| wanted.is_empty() || wanted.iter().any(|id| is_called(device, id)));
    let gpus: Vec<Gpu> = chosen
        .filter_map(|device| {
            let uuid = device.uuid.clone()?;
            Some(Gpu { index: device.index, folder: DaemonFolder::new(home.path(), &uuid), uuid })
        })
        .collect();
    if gpus.is_empty() {
        bail!("there is no NVIDIA GPU here");
    }
    Ok(gpus)
}

/// The daemon that root or this user already runs. Warns of another user's.
fn find_theirs(config: &GpuConfig) -> Option<Daemon> {
    Daemon::theirs(config).unwrap_or_else(|foreign| {
        complain(&format!("warning: {foreign}"));
        None
    })
}

fn start(config: &GpuConfig, gpus: &[Gpu]) -> anyhow::Result<Exit> {
    if let Some(theirs) = find_theirs(config) {
        complain(&format!(
            "a daemon already runs at {}: it is used, and none is started",
            theirs.pipes().display()
        ));
        return Ok(Exit::Success);
    }
    for gpu in gpus {
        let shared = SharedDaemon::start(config, gpu.folder.clone(), &gpu.uuid)?;
        // Runs use it, but do not end it.
        gpu.folder.set_kept(true)?;
        let pid = shared.daemon().pid();
        let process = pid.map_or_else(|| "running".to_owned(), |pid| format!("process {pid}"));
        complain(&format!("GPU {}: {process}", gpu.index));
    }
    complain(
        "hint: they stay until `packhorse mps stop`; `packhorse run --mps` would start and end its own",
    );
    Ok(Exit::Success)
}

fn stop(config: &GpuConfig, gpus: &[Gpu], force: bool) -> anyhow::Result<Exit> {
    let mut running = Vec::new();
    let mut used = Vec::new();
    for gpu in gpus {
        let daemon = gpu.folder.daemon(config);
        if !daemon.is_running()? {
            continue;
        }
        // Held until it is gone: no run can come to it meanwhile.
        let alone = gpu.folder.try_lock()?;
        if !force && let Some(who) = who_uses(&daemon, alone.is_some()) {
            used.push(format!("the daemon of GPU {} is in use {who}", gpu.index));
        }
        running.push((gpu, daemon, alone));
    }
    if !used.is_empty() {
        bail!(
            "{}; none was ended\n\
             hint: `packhorse mps stop` works when they have finished, --gpus names others, \
             and --force ends it under them",
            used.join(", ")
        );
    }
    for gpu in gpus {
        gpu.folder.set_kept(false)?;
    }
    for (gpu, daemon, _alone) in running {
        daemon.quit(QUIT_TIME)?;
        complain(&format!("GPU {}: ended", gpu.index));
    }
    Ok(Exit::Success)
}

/// Who would lose a daemon: runs, or programs that were started by hand.
fn who_uses(daemon: &Daemon, by_no_run: bool) -> Option<String> {
    // A server may go between two questions about it, and its clients with it.
    let servers = daemon.status().map(|status| status.servers);
    let servers = servers.unwrap_or_default();
    let clients = servers.iter().flat_map(|server| &server.clients);
    let clients: Vec<String> = clients.map(ToString::to_string).collect();
    match (by_no_run, clients.as_slice()) {
        (true, []) => None,
        (true, [one]) => Some(format!("by process {one}")),
        (true, _) => Some(format!("by processes {}", clients.join(", "))),
        (false, []) => Some("by a run".to_owned()),
        (false, [one]) => Some(format!("by a run (process {one})")),
        (false, _) => Some(format!("by a run (processes {})", clients.join(", "))),
    }
}

fn status(config: &GpuConfig, gpus: &[Gpu], as_json: bool) -> anyhow::Result<Exit> {
    let mut found: Vec<(String, Daemon, DaemonStatus)> = Vec::new();
    for gpu in gpus {
        let daemon = gpu.folder.daemon(config);
        if daemon.is_running()? {
            let status = daemon.status()?;
            found.push((gpu.index.to_string(), daemon, status));
        }
    }
    if let Some(daemon) = find_theirs(config) {
        let status = daemon.status()?;
        found.push(("all".to_owned(), daemon, status));
    }
    if as_json {
        return print_json(&found.iter().map(as_value).collect());
    }
    let mut out = stdout();
    if found.is_empty() {
        writeln!(out, "no MPS daemon is running")?;
        return Ok(Exit::Success);
    }
    let mut shown = table("GPU  DAEMON  OWNER  THREADS  SERVERS", &[1, 3]);
    for (gpu, daemon, status) in &found {
        let servers: Vec<String> = status
            .servers
            .iter()
            .map(|server| {
                let clients = wording::count(server.clients.len() as u64, "client");
                format!("{} {}, {clients}", server.pid, server.state)
            })
            .collect();
        shown.add_row([
            gpu.clone(),
            wording::or_dash(status.pid),
            owner(daemon).to_owned(),
            wording::or_dash(status.threads),
            if servers.is_empty() { "none yet".to_owned() } else { servers.join("; ") },
        ]);
    }
    print_table(&mut out, &shown)?;
    Ok(Exit::Success)
}

fn owner(daemon: &Daemon) -> &'static str {
    match daemon.ownership() {
        Ownership::Ours => "packhorse",
        Ownership::Theirs => "somebody else",
    }
}

fn as_value((gpu, daemon, status): &(String, Daemon, DaemonStatus)) -> Value {
    json!({
        "gpu": gpu,
        "owner": owner(daemon),
        "pipes": daemon.pipes(),
        "pid": status.pid,
        "thread_percentage": status.threads.map(|threads| threads.0),
        "servers": status.servers.iter().map(|server| json!({
            "pid": server.pid,
            "state": server.state,
            "clients": server.clients,
        })).collect::<Vec<_>>(),
    })
}
