//! One device's account: which of our attempts are on it, and what others hold.

use packhorse_model::{Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, Request};

use crate::reserve::Slack;
use crate::tasks::Handle;
use crate::time::{EndTimes, Moment};
use crate::{DeviceSpec, KeptRoom, Outside};

#[derive(Clone, Debug)]
pub(crate) struct DeviceLedger {
    pub(crate) id: DeviceId,
    pub(crate) node: usize,
    /// The physical cores of its node that are near, in ascending order.
    pub(crate) near: Vec<usize>,
    /// How much memory it has; 0 if nobody knows.
    pub(crate) capacity: Bytes,
    pub(crate) model: u8,
    /// Whether one process at a time may compute on it.
    pub(crate) one_process: bool,
    /// At most so many attempts on it, others' included.
    pub(crate) max_attempts: Option<u32>,
    pub(crate) drained: bool,
    /// Whether it is removed when the last of our attempts on it has ended.
    pub(crate) leaving: bool,
    pub(crate) outside: Outside,
    /// Our attempts on it, in no order that means anything.
    pub(crate) tenants: Vec<Tenant>,
    /// What those hold together.
    pub(crate) load: TenantLoad,
}

/// An attempt on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) task: Handle,
    pub(crate) share: Milli,
    pub(crate) promised: Bytes,
    /// What the driver shows that it holds.
    pub(crate) observed: Bytes,
    /// Whether it has the device to itself.
    pub(crate) whole: bool,
    pub(crate) ends: EndTimes,
}

/// What attempts hold of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TenantLoad {
    pub(crate) share: Milli,
    pub(crate) memory: Bytes,
    pub(crate) attempts: u32,
    pub(crate) whole: bool,
}

/// What there is of a device for one more attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRoom {
    pub(crate) share: Milli,
    /// `u64::MAX` where memory is not counted.
    pub(crate) memory: Bytes,
}

/// The amount of memory that `request` needs of each device, where that counts.
pub(crate) fn memory_of(request: &Request) -> Bytes {
    match request.memory {
        MemoryRequest::Bytes(memory) | MemoryRequest::AtLeast(memory) => memory,
        MemoryRequest::Uncounted | MemoryRequest::Whole => Bytes(0),
    }
}

/// Whether an attempt has its devices to itself.
pub(crate) fn is_whole(request: &Request) -> bool {
    matches!(request.gpus, GpuRequest::Whole(_)) || request.memory == MemoryRequest::Whole
}

impl DeviceRoom {
    /// Whether the amounts of `request` fit.
    pub(crate) fn fits(self, request: &Request) -> bool {
        request.gpus.share() <= self.share && memory_of(request) <= self.memory
    }
}

impl Tenant {
    /// How much memory it counts for.
    pub(crate) fn memory(&self) -> Bytes {
        self.promised.max(self.observed)
    }
}

impl TenantLoad {
    pub(crate) fn add(&mut self, tenant: &Tenant) {
        // A driver may show anything, and what is adopted may hold anything.
        self.share.0 = self.share.0.saturating_add(tenant.share.0);
        self.memory.0 = self.memory.0.saturating_add(tenant.memory().0);
        self.attempts += 1;
        self.whole |= tenant.whole;
    }

    /// All of `tenants` together.
    pub(crate) fn of<'a>(tenants: impl IntoIterator<Item = &'a Tenant>) -> Self {
        let mut load = Self::default();
        tenants.into_iter().for_each(|tenant| load.add(tenant));
        load
    }
}

impl DeviceLedger {
    pub(crate) fn new(
        spec: &DeviceSpec,
        node: usize,
        near: Vec<usize>,
        max_attempts: Option<u32>,
    ) -> Self {
        Self {
            id: spec.id,
            node,
            near,
            capacity: spec.memory,
            model: spec.model,
            one_process: spec.one_process,
            max_attempts,
            drained: false,
            leaving: false,
            outside: Outside::default(),
            tenants: Vec::new(),
            load: TenantLoad::default(),
        }
    }

    pub(crate) fn enter(&mut self, tenant: Tenant) {
        self.load.add(&tenant);
        self.tenants.push(tenant);
    }

    pub(crate) fn leave(&mut self, task: Handle) {
        self.tenants.retain(|tenant| tenant.task != task);
        self.load = TenantLoad::of(&self.tenants);
    }

    /// Takes note of what `task` holds. Whether that changes anything.
    pub(crate) fn observe(&mut self, task: Handle, memory: Bytes) -> bool {
        let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.task == task) else {
            return false;
        };
        tenant.observed = memory;
        let before = self.load;
        self.load = TenantLoad::of(&self.tenants);
        self.load != before
    }

    /// What an attempt for `request` is promised of its memory.
    pub(crate) fn promise(&self, request: &Request) -> Bytes {
        match request.memory {
            MemoryRequest::Whole => self.capacity,
            MemoryRequest::AtLeast(_) => self.free(),
            _ => memory_of(request),
        }
    }

    /// Promises `task` another amount of its memory: so much, or as much as there is for
    /// it, but no less than `least`. Whether that changes anything.
    pub(crate) fn change_promise(&mut self, task: Handle, memory: Bytes, least: Bytes) -> bool {
        let before = self.load;
        let others = self.tenants.iter().filter(|tenant| tenant.task != task);
        self.load = TenantLoad::of(others);
        let most = self.free();
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.task == task) {
            tenant.promised = memory.min(most).max(least);
        }
        self.load = TenantLoad::of(&self.tenants);
        self.load != before
    }

    /// What is free of its memory.
    pub(crate) fn free(&self) -> Bytes {
        Bytes(self.capacity.0.saturating_sub(self.taken().0))
    }

    /// What is promised of its memory.
    pub(crate) fn promised(&self) -> Bytes {
        let promised = self.tenants.iter().map(|tenant| tenant.promised.0);
        Bytes(promised.fold(0, u64::saturating_add))
    }

    /// What is taken of its memory, by us and by others.
    pub(crate) fn taken(&self) -> Bytes {
        Bytes(self.load.memory.0.saturating_add(self.outside.memory.0))
    }

    /// What is taken of its shares, by us and by others.
    pub(crate) fn used(&self) -> Milli {
        Milli(self.load.share.0.saturating_add(self.outside.share.0))
    }

    /// How full it is in thousandths with this `load` of ours: by its share or its
    /// memory, whichever is fuller.
    pub(crate) fn fullness(&self, load: TenantLoad) -> u64 {
        let share = u64::from(load.share.0) + u64::from(self.outside.share.0);
        let taken = load.memory.0.saturating_add(self.outside.memory.0);
        // Beyond this a device is more than full, whatever its size.
        let taken = taken.min(u64::MAX / 1000) * 1000;
        share.max(taken.checked_div(self.capacity.0).unwrap_or(0))
    }

    /// How much strangers are in the way there, in twentieths of its memory: 0 where no
    /// program of theirs computes.
    pub(crate) fn crowding(&self) -> u64 {
        if !self.outside.has_strangers {
            return 0;
        }
        let held = u128::from(self.outside.computing_strangers().0) * 20;
        let part = held.checked_div(self.capacity.0.into()).unwrap_or(0);
        u64::try_from(part).map_or(u64::MAX, |part| part.saturating_add(1))
    }

    /// How many attempts are on it, others' included.
    pub(crate) fn attempts(&self) -> u32 {
        self.load.attempts.saturating_add(self.outside.attempts)
    }

    /// Whether nothing more is started on it.
    pub(crate) fn is_closed(&self) -> bool {
        self.drained || self.leaving
    }

    /// What there is now for one more attempt like `request`, whatever its
    /// amounts; nothing if it could not be there at all.
    pub(crate) fn headroom(&self, request: &Request) -> Option<DeviceRoom> {
        if self.is_closed() {
            return None;
        }
        let room = self.room(self.load, self.outside, request)?;
        match self.outside.kept {
            kept if kept == KeptRoom::default() => Some(room),
            kept => Slack::of(self, kept)?.limit(request, room),
        }
    }

    /// The same if none of our attempts were there, and other runs had made room for us.
    pub(crate) fn reach(&self, request: &Request) -> Option<DeviceRoom> {
        if self.is_closed() {
            return None;
        }
        let outside = self.outside.without_yielding();
        self.room(TenantLoad::default(), outside, request)
    }

    /// Whether `request` does not fit before other runs have made room, or those who have
    /// waited longer have had theirs.
    pub(crate) fn needs_others(&self, request: &Request) -> bool {
        let room = self.room(TenantLoad::default(), self.outside, request);
        self.outside.kept != KeptRoom::default() || room.is_none_or(|room| !room.fits(request))
    }

    /// The same if nobody's processes were there, and drained or not.
    pub(crate) fn size(&self, request: &Request) -> Option<DeviceRoom> {
        self.room(TenantLoad::default(), Outside::default(), request)
    }

    /// Whether `request` fits if nobody's processes were there, drained or not.
    pub(crate) fn suits(&self, request: &Request) -> bool {
        self.size(request).is_some_and(|size| size.fits(request))
    }

    /// Whether that is more of its memory than a desktop's few windows hold.
    pub(crate) fn is_load(&self, memory: Bytes) -> bool {
        u128::from(memory.0) * 20 > u128::from(self.capacity.0)
    }

    /// Whether `task` was promised all of it, or nearly so.
    pub(crate) fn is_all_promised_to(&self, task: Handle) -> bool {
        let mut tenants = self.tenants.iter();
        let tenant = tenants.find(|tenant| tenant.task == task);
        tenant.is_some_and(|tenant| {
            let drawn = self.outside.drawn.0;
            let rest = self.capacity.0.saturating_sub(tenant.promised.0.saturating_add(drawn));
            !self.is_load(Bytes(rest))
        })
    }

    /// What there is for one more attempt beside this `load` of ours and this of `outside`.
    pub(crate) fn room(
        &self,
        load: TenantLoad,
        outside: Outside,
        request: &Request,
    ) -> Option<DeviceRoom> {
        let shares = matches!(request.gpus, GpuRequest::Share(_));
        if self.one_process && (shares || outside.has_strangers) {
            return None;
        }
        let suits = request.models.contains(self.model) && self.capacity >= request.device_memory;
        if !suits || load.whole || outside.whole {
            return None;
        }
        let attempts = load.attempts.saturating_add(outside.attempts);
        if self.max_attempts.is_some_and(|most| attempts >= most) {
            return None;
        }
        if is_whole(request) && (attempts > 0 || outside.share > Milli(0)) {
            return None;
        }
        let used = load.share.0.saturating_add(outside.share.0);
        let share = Milli(Milli::ONE.0.checked_sub(used)?);
        let memory = match request.memory {
            MemoryRequest::Whole if self.is_load(outside.computing()) => return None,
            MemoryRequest::Uncounted | MemoryRequest::Whole => Bytes(u64::MAX),
            // Whoever may take anything takes nothing from strangers.
            MemoryRequest::AtLeast(_) if self.is_load(outside.computing_strangers()) => {
                return None;
            }
            // Of an unknown amount nothing can be promised.
            _ if self.capacity == Bytes(0) => return None,
            MemoryRequest::Bytes(_) | MemoryRequest::AtLeast(_) => {
                let taken = load.memory.0.saturating_add(outside.memory.0);
                Bytes(self.capacity.0.saturating_sub(taken))
            }
        };
        Some(DeviceRoom { share, memory })
    }

    /// When there will be room for `request`, if our attempts end when they
    /// should.
    pub(crate) fn ready(&self, request: &Request, now: Moment) -> Moment {
        let fits =
            |load| self.room(load, self.outside, request).is_some_and(|room| room.fits(request));
        let mut load = self.load;
        let mut rest = self.tenants.iter().map(|tenant| tenant.ends.at(now)).min();
        let mut when = now;
        while !fits(load) {
            // Those who end at the same moment go together.
            let Some(next) = rest.filter(|&next| next != Moment::NEVER) else {
                return Moment::NEVER;
            };
            when = next;
            rest = None;
            load = TenantLoad::default();
            for tenant in &self.tenants {
                let end = tenant.ends.at(now);
                if end > when {
                    load.add(tenant);
                    rest = Some(rest.map_or(end, |rest| rest.min(end)));
                }
            }
        }
        when
    }
}
