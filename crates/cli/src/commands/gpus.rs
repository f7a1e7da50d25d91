use std::collections::BTreeMap;
use std::io::Write as _;

use comfy_table::{ColumnConstraint, Table};
use packhorse_gpu::{ComputeMode, Device, Driver, Health};
use packhorse_leases::{Lease, LeasedDevice};
use packhorse_model::Exit;
use packhorse_session::ask_driver;
use packhorse_store::{DrainedDevice, Home, Reader};
use packhorse_trust::user_name;
use serde_json::{Value, json};

use super::launch::find_settings;
use super::table::{fits, print_json, print_table, table};
use crate::args::GpusArgs;
use crate::stdout::stdout;
use crate::wording::{clipped, or_dash};

/// `packhorse gpus`
pub fn gpus(args: &GpusArgs) -> anyhow::Result<Exit> {
    let settings = find_settings()?;
    let devices = ask_driver(&settings.gpu_config(), &mut crate::complain, |config| {
        Driver::detect(config)?.devices()
    })??;
    let home = Home::locate()?;
    if let Some(id) = &args.restore {
        return restore(&home, &devices, id);
    }
    let drained = Reader::open(&home)?.drained()?;
    // Where nobody has left word, nobody holds anything.
    let mut leases = packhorse_leases::read_leases(&settings.lease_folder()).unwrap_or_default();
    name_users(&mut leases);
    if args.json {
        let mut values = json!(devices);
        for (at, device) in devices.iter().enumerate() {
            values[at]["taken_out"] = taken_out(device, &drained).into();
            values[at]["held_by"] = held(device, &leases).map(held_json).collect();
        }
        return print_json(&values);
    }
    let mut out = stdout();
    let home = home.id()?;
    if devices.is_empty() {
        writeln!(out, "no GPUs")?;
        crate::complain(
            "hint: `packhorse run --gpus 0,1` hands out ids without looking, `--slots N` runs without GPUs",
        );
    }
    let mut shown = device_table(&devices, &drained, usize::MAX);
    let mut tables = Vec::new();
    if !fits(&shown) {
        // Whoever copies a UUID needs all of it.
        shown = device_table(&devices, &drained, NARROW_NAME);
        if let Some(column) = shown.column_mut(UUID) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
        tables.push(detail_table(&devices, &drained));
    }
    tables.push(holder_table(&devices, &leases));
    if !devices.is_empty() {
        print_table(&mut out, &shown)?;
    }
    print_tables(&mut out, &tables)?;
    for (label, lease, _) in all_held(&devices, &leases) {
        if lease.left.is_some() {
            writeln!(out, "GPU {label}: {}", lease.describe(&home, &lease.owner.user))?;
        }
    }
    // What was left by a dead run waits for nothing.
    for lease in leases.iter().filter(|lease| lease.left.is_none()) {
        for wanted in lease.claim.iter().flat_map(|claim| &claim.devices) {
            let label = label(&devices, &wanted.device);
            writeln!(
                out,
                "GPU {label}: {} waits for it",
                lease.describe(&home, &lease.owner.user)
            )?;
        }
    }
    print_tables(&mut out, &[process_table(&devices)])?;
    Ok(Exit::Success)
}

fn print_tables(out: &mut impl std::io::Write, tables: &[Table]) -> anyhow::Result<()> {
    for table in tables.iter().filter(|table| table.row_count() > 0) {
        writeln!(out)?;
        print_table(&mut *out, table)?;
    }
    Ok(())
}

/// Puts a GPU back.
fn restore(home: &Home, devices: &[Device], id: &str) -> anyhow::Result<Exit> {
    let mut found = false;
    for id in id.split('+') {
        let device = devices.iter().find(|device| is_called(device, id));
        let keys = device.map_or_else(Vec::new, keys);
        for key in keys.iter().copied().chain([id]) {
            found |= home.restore(key)?;
        }
    }
    if !found {
        anyhow::bail!("GPU {id} was not taken out\nhint: `packhorse gpus` shows which ones were");
    }
    crate::complain(&format!("GPU {id} is used again by runs that start from now on"));
    Ok(Exit::Success)
}

/// Whether this is what people call a device.
pub fn is_called(device: &Device, id: &str) -> bool {
    device.index.to_string() == id || device.uuid.as_deref() == Some(id)
}

/// Why a device is not used, if an earlier run found something wrong with it.
fn taken_out(device: &Device, drained: &[DrainedDevice]) -> Option<String> {
    let index = device.index.to_string();
    let keys = keys(device);
    let is = |drained: &&DrainedDevice| drained.device == index || keys.contains(&&*drained.device);
    let found = drained.iter().find(is)?;
    Some(found.reason.clone())
}

/// What runs know a device by: its UUID, and those of its instances.
fn keys(device: &Device) -> Vec<&str> {
    let instances = device.instances().iter().map(|instance| &instance.uuid);
    let all = device.uuid.iter().chain(instances);
    all.map(String::as_str).collect()
}

/// What people call what runs know by `key`: if the driver does not know it, that is all
/// there is.
fn label(devices: &[Device], key: &str) -> String {
    let known = devices.iter().find(|device| keys(device).contains(&key));
    known.map_or_else(|| key.to_owned(), |device| device.index.to_string())
}

/// All that runs hold, by what people call the device.
fn all_held<'a>(
    devices: &'a [Device],
    leases: &'a [Lease],
) -> impl Iterator<Item = (String, &'a Lease, &'a LeasedDevice)> {
    let held = leases.iter().flat_map(|lease| lease.held.iter().map(move |held| (lease, held)));
    let mut held: Vec<_> =
        held.map(|(lease, held)| (label(devices, &held.device), lease, held)).collect();
    held.sort_by(|one, other| (one.0.len(), &one.0).cmp(&(other.0.len(), &other.0)));
    held.into_iter()
}

/// What runs hold of a device.
fn held<'a>(
    device: &'a Device,
    leases: &'a [Lease],
) -> impl Iterator<Item = (&'a Lease, &'a LeasedDevice)> {
    let keys = keys(device);
    let held = leases.iter().flat_map(|lease| lease.held.iter().map(move |held| (lease, held)));
    held.filter(move |(_, held)| keys.contains(&&*held.device))
}

/// Looks up whose leases they are that do not say it, each user once.
fn name_users(leases: &mut [Lease]) {
    let mut names = BTreeMap::new();
    let name = |uid: u32| user_name(uid).unwrap_or_else(|| uid.to_string());
    for lease in leases {
        lease.owner.user = lease.user(|uid| {
            let known = names.entry(uid).or_insert_with(|| name(uid));
            known.clone()
        });
    }
}

fn held_json((lease, held): (&Lease, &LeasedDevice)) -> Value {
    json!({
        "pid": lease.pid,
        "uid": lease.uid,
        "user": lease.owner.user,
        "run": lease.owner.run,
        "command": lease.owner.command,
        "memory": held.memory,
        "share": held.share,
        "tasks": held.attempts,
        "alone": held.whole,
        "left_running": lease.left,
    })
}

fn holder_table(devices: &[Device], leases: &[Lease]) -> Table {
    let header = "GPU  RUN  USER  PID  TASKS  SHARE  TAKEN  STARTED AS";
    let mut table = table(header, &[1, 3, 4, 5, 6]);
    for (label, lease, held) in all_held(devices, leases) {
        let share = if held.whole { "alone".to_owned() } else { held.share.to_string() };
        table.add_row([
            label,
            or_dash(lease.owner.run),
            lease.owner.user.clone(),
            lease.pid.to_string(),
            held.attempts.to_string(),
            share,
            held.memory.to_string(),
            clipped(&lease.owner.command, 50).into_owned(),
        ]);
    }
    table
}

/// Where the UUID stands in the table of devices.
const UUID: usize = 7;

/// How long names may be where there is little room.
const NARROW_NAME: usize = 24;

/// What there is no room for in the table of devices.
fn detail_table(devices: &[Device], drained: &[DrainedDevice]) -> Table {
    let mut table = table("GPU  UUID", &[]);
    for device in devices {
        table.add_row([device.index.to_string(), or_dash(device.uuid.as_ref())]);
        if let Some(trouble) = trouble(device, drained) {
            table.add_row([String::new(), trouble]);
        }
        if let Some(mode) = compute_mode(device) {
            table.add_row([String::new(), mode.to_owned()]);
        }
        for instance in device.instances() {
            table.add_row([String::new(), instance.uuid.clone()]);
        }
    }
    table
}

/// What is wrong with a device, if something is.
fn trouble(device: &Device, drained: &[DrainedDevice]) -> Option<String> {
    match &device.health {
        Health::Ok => taken_out(device, drained).map(|reason| format!("taken out: {reason}")),
        Health::Lost(reason) => Some(format!("lost: {reason}")),
    }
}

/// How many programs may compute on a device, if that is limited.
fn compute_mode(device: &Device) -> Option<&'static str> {
    match device.compute_mode? {
        ComputeMode::ExclusiveProcess => Some("one process at a time"),
        ComputeMode::Prohibited => Some("compute prohibited"),
        ComputeMode::Default => None,
    }
}

fn device_table(devices: &[Device], drained: &[DrainedDevice], name_width: usize) -> Table {
    let header = "GPU  NAME  MEMORY  FREE  BUSY  TEMP  POWER  UUID";
    let mut table = table(header, &[2, 3, 4, 5, 6]);
    for device in devices {
        let name = trouble(device, drained).unwrap_or_else(|| or_dash(device.name.as_ref()));
        let mode = compute_mode(device).map_or_else(String::new, |mode| format!(" ({mode})"));
        let name = name + &mode;
        let name = clipped(&name, name_width).into_owned();
        table.add_row([
            device.index.to_string(),
            name,
            or_dash(device.memory.map(|memory| memory.total)),
            or_dash(device.memory.map(|memory| memory.free)),
            or_dash(device.utilisation),
            or_dash(device.temperature),
            or_dash(device.power.map(|power| match device.power_limit {
                Some(limit) => format!("{power} of {limit}"),
                None => power.to_string(),
            })),
            or_dash(device.uuid.as_ref()),
        ]);
        for instance in device.instances() {
            table.add_row([
                String::new(),
                format!("  MIG {}", or_dash(instance.profile.as_ref())),
                or_dash(instance.memory.map(|memory| memory.total)),
                or_dash(instance.memory.map(|memory| memory.free)),
                String::new(),
                String::new(),
                String::new(),
                instance.uuid.clone(),
            ]);
        }
    }
    table
}

fn process_table(devices: &[Device]) -> Table {
    let mut table = table("GPU  PID  USER  MEMORY  COMMAND", &[1, 3]);
    for device in devices {
        for process in device.processes.iter().flatten() {
            let command = or_dash(process.command.as_ref());
            table.add_row([
                device.index.to_string(),
                process.pid.to_string(),
                or_dash(process.user.as_ref()),
                or_dash(process.memory),
                clipped(&command, 80).into_owned(),
            ]);
        }
    }
    table
}
