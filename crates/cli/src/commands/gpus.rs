use std::io::Write as _;

use packhorse_gpu::{Config, Device, Driver, Health, Memory, Process};
use packhorse_model::Exit;
use serde_json::{Value, json};

use super::table::table;
use crate::args::GpusArgs;
use crate::wording;

/// `packhorse gpus`
pub fn gpus(args: &GpusArgs) -> anyhow::Result<Exit> {
    let driver = Driver::detect(&Config::from_env())?;
    let devices = driver.devices()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let devices: Vec<Value> = devices.iter().map(as_json).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&devices)?)?;
        return Ok(Exit::Success);
    }
    if devices.is_empty() {
        writeln!(out, "no GPUs")?;
        crate::complain(
            "hint: `packhorse run --gpus 0,1` hands out ids without looking, `--slots N` runs without GPUs",
        );
        return Ok(Exit::Success);
    }
    writeln!(out, "{}", device_table(&devices))?;
    let people = process_table(&devices);
    if people.row_count() > 0 {
        writeln!(out, "\n{people}")?;
    }
    Ok(Exit::Success)
}

fn device_table(devices: &[Device]) -> comfy_table::Table {
    let header = [
        "GPU", "NAME", "MEMORY", "FREE", "BUSY", "TEMP", "POWER", "UUID",
    ];
    let mut table = table(header, &[2, 3, 4, 5, 6]);
    for device in devices {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let name = match &device.health {
            Health::Ok => text(device.name.clone()),
            Health::Lost(reason) => format!("lost: {reason}"),
        };
        table.add_row([
            device.index.to_string(),
            name,
            text(device.memory.map(|memory| memory.total.to_string())),
            text(device.memory.map(|memory| memory.free.to_string())),
            text(device.utilisation.map(|busy| busy.to_string())),
            text(device.temperature.map(|heat| heat.to_string())),
            text(device.power.map(|power| match device.power_limit {
                Some(limit) => format!("{power} of {limit}"),
                None => power.to_string(),
            })),
            text(device.uuid.clone()),
        ]);
        for instance in device.instances() {
            table.add_row([
                String::new(),
                format!("  MIG {}", text(instance.profile.clone())),
                text(instance.memory.map(|memory| memory.total.to_string())),
                text(instance.memory.map(|memory| memory.free.to_string())),
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
    let mut table = table(["GPU", "PID", "USER", "MEMORY", "COMMAND"], &[1, 3]);
    for device in devices {
        for process in device.processes.iter().flatten() {
            let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let command = text(process.command.clone());
            table.add_row([
                device.index.to_string(),
                process.pid.to_string(),
                text(process.user.clone()),
                text(process.memory.map(|memory| memory.to_string())),
                wording::clipped(&command, 80).into_owned(),
            ]);
        }
    }
    table
}

fn as_json(device: &Device) -> Value {
    json!({
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "vendor": device.vendor.word(),
        "pci_bus_id": device.pci_bus_id,
        "near_cores": device.near_cores.iter().map(|core| core.0).collect::<Vec<_>>(),
        "memory": device.memory.map(memory),
        "utilisation_percent": device.utilisation.map(|busy| busy.0),
        "temperature_celsius": device.temperature.map(|heat| heat.0),
        "power_milliwatts": device.power.map(|power| power.0),
        "power_limit_milliwatts": device.power_limit.map(|power| power.0),
        "processes": device.processes.as_deref().map(processes),
        "mig": device.mig.as_ref().map(|instances| {
            instances
                .iter()
                .map(|instance| json!({
                    "uuid": instance.uuid,
                    "profile": instance.profile,
                    "memory": instance.memory.map(memory),
                    "processes": instance.processes.as_deref().map(processes),
                }))
                .collect::<Vec<_>>()
        }),
        "lost": match &device.health {
            Health::Ok => None,
            Health::Lost(reason) => Some(reason),
        },
    })
}

fn memory(memory: Memory) -> Value {
    json!({
        "total": memory.total.0,
        "used": memory.used.0,
        "free": memory.free.0,
        "reserved": memory.reserved.0,
    })
}

fn processes(processes: &[Process]) -> Vec<Value> {
    processes
        .iter()
        .map(|process| {
            json!({
                "pid": process.pid,
                "memory": process.memory.map(|memory| memory.0),
                "user": process.user,
                "command": process.command,
            })
        })
        .collect()
}
