use anyhow::{Error, Result, anyhow};
use packhorse_core::{DeviceSpec, NodeSpec, Pool};
use packhorse_model::{Bytes, DeviceId, GpuRequest, Milli, Models, NodeId, Request};

const MIB: u64 = 1 << 20;

/// A production cluster and its tasks, as Alibaba published them
/// (`cluster-trace-gpu-v2023`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The machines, without those that have no GPU.
    pub pool: Pool,
    /// What each task requested.
    pub tasks: Vec<Request>,
}

/// One line of a list.
struct TraceRow<'a> {
    list: &'static str,
    line: usize,
    text: &'a str,
}

impl<'a> TraceRow<'a> {
    fn all(list: &'static str, text: &'a str) -> impl Iterator<Item = Self> {
        // The first line names the columns.
        let lines = text.lines().zip(1..).skip(1);
        let lines = lines.filter(|(text, _)| !text.trim().is_empty());
        lines.map(move |(text, line)| Self { list, line, text })
    }

    /// A column; empty if the line ends before it.
    fn get(&self, column: usize) -> &'a str {
        self.text.split(',').nth(column).unwrap_or("").trim()
    }

    fn number(&self, column: usize, what: &str) -> Result<u32> {
        self.get(column).parse().map_err(|_| self.wrong(what))
    }

    fn wrong(&self, what: &str) -> Error {
        let Self { list, line, text } = self;
        anyhow!("line {line} of the list of {list}: `{text}` has no {what}")
    }
}

/// The GPU models, in the order in which they appear.
#[derive(Default)]
struct ModelNumbers(Vec<String>);

impl ModelNumbers {
    /// A pool has at most 64 models.
    fn number(&mut self, name: &str) -> Option<u8> {
        let known = self.0.iter().position(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        u8::try_from(place).ok().filter(|&place| place < 64)
    }

    /// Parses a set written as `A|B`; an empty one means all.
    fn set(&self, names: &str) -> Models {
        if names.is_empty() {
            return Models::ANY;
        }
        let known = |name: &str| self.0.iter().position(|known| known == name.trim());
        let bits = names.split('|').filter_map(known);
        Models(bits.fold(0, |set, bit| set | (1 << bit)))
    }
}

impl Trace {
    /// Parses the lists `sn, cpu_milli, memory_mib, gpu, model` of machines and
    /// `name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, …` of tasks;
    /// lines of tasks may end after `gpu_milli`.
    pub fn parse(nodes: &str, tasks: &str) -> Result<Self> {
        let mut models = ModelNumbers::default();
        let mut pool = Pool::default();
        let mut devices = 0_u32;
        for row in TraceRow::all("machines", nodes) {
            let gpus = row.number(3, "gpu")?;
            if gpus == 0 {
                continue;
            }
            let model = models.number(row.get(4));
            let model = model.ok_or_else(|| row.wrong("model that is one of the first 64"))?;
            let device = |id: u32| DeviceSpec {
                id: DeviceId(id),
                near_cores: Vec::new(),
                memory: Bytes(0),
                model,
                one_process: false,
            };
            let next = devices.saturating_add(gpus);
            pool.nodes.push(NodeSpec {
                id: NodeId(u32::try_from(pool.nodes.len()).unwrap_or(u32::MAX)),
                devices: (devices..next).map(device).collect(),
                cores: Vec::new(),
                cpu: Some(Milli(row.number(1, "cpu_milli")?)),
                ram: Some(Bytes(u64::from(row.number(2, "memory_mib")?) * MIB)),
            });
            devices = next;
        }
        let tasks = TraceRow::all("tasks", tasks).map(|row| {
            let gpus = match (row.number(3, "num_gpu")?, row.number(4, "gpu_milli")?) {
                (0, _) => GpuRequest::None,
                (1, share @ 0..1000) => GpuRequest::Share(Milli(share)),
                (count, _) => GpuRequest::Whole(count),
            };
            Ok(Request {
                gpus,
                cpu: Milli(row.number(1, "cpu_milli")?),
                ram: Bytes(u64::from(row.number(2, "memory_mib")?) * MIB),
                models: models.set(row.get(5)),
                ..Request::default()
            })
        });
        let tasks = tasks.collect::<Result<_>>()?;
        Ok(Self { pool, tasks })
    }

    /// All GPUs, in thousandths of one.
    pub fn capacity(&self) -> u64 {
        let devices: usize = self.pool.nodes.iter().map(|node| node.devices.len()).sum();
        devices as u64 * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\n\
        a,64000,1024,2,P100\n\
        b,8000,512,0,\n\
        c,96000,2048,1,T4\n";

    #[test]
    fn both_lists_are_read() {
        let tasks = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
            p,1000,10,1,460,T4|V100\n\
            q,2000,20,2,1000\n\
            r,3000,30,0,0,\n\
            s,4000,40,1,1000,P100|T4\n";
        let trace = Trace::parse(NODES, tasks).unwrap();
        assert_eq!(trace.capacity(), 3000, "the node without GPUs is left out");
        let devices = trace.pool.nodes.iter().flat_map(|node| &node.devices);
        let devices: Vec<_> = devices.map(|spec| (spec.id.0, spec.model)).collect();
        assert_eq!(devices, [(0, 0), (1, 0), (2, 1)]);
        let wanted: Vec<_> = trace
            .tasks
            .iter()
            .map(|request| (request.gpus, request.cpu.0, request.models))
            .collect();
        assert_eq!(
            wanted,
            [
                (GpuRequest::Share(Milli(460)), 1000, Models(0b10)),
                (GpuRequest::Whole(2), 2000, Models::ANY),
                (GpuRequest::None, 3000, Models::ANY),
                (GpuRequest::Whole(1), 4000, Models(0b11)),
            ]
        );
        assert_eq!(trace.tasks[0].ram, Bytes(10 << 20));
    }

    #[test]
    fn wrong_line_is_named() {
        let error = Trace::parse(NODES, "head\np,1000,10,one,460\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2 of the list of tasks: `p,1000,10,one,460` has no num_gpu"
        );
    }
}
