use std::io::Write as _;

use packhorse_gpu::{Device, Driver, Health};
use packhorse_leases::{Lease, LeasedDevice};
use packhorse_model::Exit;
use packhorse_session::ask_driver;
use packhorse_session::settings::Settings;
use packhorse_store::{DrainedDevice, Home, Reader};
use serde_json::{Value, json};

use super::table::{print_json, table};
use crate::args::GpusArgs;
use crate::wording::{clipped, or_dash};

/// `packhorse gpus`
pub fn gpus(args: &GpusArgs) -> anyhow::Result<Exit> {
    let settings = Settings::find()?;
    let devices = ask_driver(&settings.gpu_config(), &mut crate::complain, |config| {
        Driver::detect(config)?.devices()
    })??;
    let home = Home::locate()?;
    if let Some(id) = &args.restore {
        return restore(&home, &devices, id);
    }
    let drained = Reader::open(&home)?.drained()?;
    // Where nobody has left word, nobody holds anything.
    let leases = packhorse_leases::read_leases(&settings.lease_folder()).unwrap_or_default();
    if args.json {
        let mut values = json!(devices);
        for (at, device) in devices.iter().enumerate() {
            values[at]["taken_out"] = taken_out(device, &drained).into();
            values[at]["held_by"] = held(device, &leases).map(held_json).collect();
        }
        return print_json(&values);
    }
    let mut out = std::io::stdout().lock();
    if devices.is_empty() {
        writeln!(out, "no GPUs")?;
        crate::complain(
            "hint: `packhorse run --gpus 0,1` hands out ids without looking, `--slots N` runs without GPUs",
        );
        return Ok(Exit::Success);
    }
    writeln!(out, "{}", device_table(&devices, &drained))?;
    for table in [holder_table(&devices, &leases), process_table(&devices)] {
        if table.row_count() > 0 {
            writeln!(out, "\n{table}")?;
        }
    }
    Ok(Exit::Success)
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
    crate::complain(&format!(
        "GPU {id} is used again by runs that start from now on"
    ));
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

/// What runs hold of a device.
fn held<'a>(
    device: &'a Device,
    leases: &'a [Lease],
) -> impl Iterator<Item = (&'a Lease, &'a LeasedDevice)> {
    let keys = keys(device);
    let held = leases
        .iter()
        .flat_map(|lease| lease.held.iter().map(move |held| (lease, held)));
    held.filter(move |(_, held)| keys.contains(&&*held.device))
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
    })
}

fn holder_table(devices: &[Device], leases: &[Lease]) -> comfy_table::Table {
    let header = "GPU  RUN  USER  PID  TASKS  SHARE  TAKEN  STARTED AS";
    let mut table = table(header, &[1, 3, 4, 5, 6]);
    for device in devices {
        for (lease, held) in held(device, leases) {
            let share = if held.whole {
                "alone".to_owned()
            } else {
                held.share.to_string()
            };
            table.add_row([
                device.index.to_string(),
                or_dash(lease.owner.run),
                lease.owner.user.clone(),
                lease.pid.to_string(),
                held.attempts.to_string(),
                share,
                held.memory.to_string(),
                clipped(&lease.owner.command, 50).into_owned(),
            ]);
        }
    }
    table
}

fn device_table(devices: &[Device], drained: &[DrainedDevice]) -> comfy_table::Table {
    let header = "GPU  NAME  MEMORY  FREE  BUSY  TEMP  POWER  UUID";
    let mut table = table(header, &[2, 3, 4, 5, 6]);
    for device in devices {
        let name = match &device.health {
            Health::Ok => match taken_out(device, drained) {
                Some(reason) => format!("taken out: {reason}"),
                None => or_dash(device.name.as_ref()),
            },
            Health::Lost(reason) => format!("lost: {reason}"),
        };
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

fn process_table(devices: &[Device]) -> comfy_table::Table {
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
