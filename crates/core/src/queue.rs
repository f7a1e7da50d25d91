//! Who waits, in order.
//!
//! Tasks with equal requests and equal bounds on their duration are a class: if
//! the first of a class may start nowhere, none of them may. So there is one
//! ordered line for each class, and an event looks at heads of lines only, never
//! at those behind them. Classes that differ in amounts alone are a family, with
//! one [`FitIndex`] of their heads, so that it need not look at every head
//! either. A class lives as long as a task refers to it, a family as long as it
//! has a class.

use std::collections::BTreeMap;

use packhorse_model::{Bytes, GpuRequest, MemoryRequest, Milli, Request};
use rustc_hash::FxHashMap;

use crate::fit_index::FitIndex;
use crate::ledger::count;
use crate::needs::{NeededAmounts, Rooms};
use crate::queue_key::QueueKey;
use crate::tasks::Handle;
use crate::time::Bound;

/// A number for a distinct request with a distinct bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassId(pub(crate) u32);

/// What decides where a task may start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    pub(crate) request: Request,
    /// How long it will hold what it gets.
    pub(crate) bound: Bound,
}

impl Demand {
    /// Its request without amounts: what its family has in common.
    fn family(&self) -> Request {
        let request = &self.request;
        Request {
            gpus: match request.gpus {
                GpuRequest::Share(_) => GpuRequest::Share(Milli(0)),
                gpus => gpus,
            },
            memory: match request.memory {
                MemoryRequest::Bytes(_) => MemoryRequest::Bytes(Bytes(0)),
                MemoryRequest::AtLeast(_) => MemoryRequest::AtLeast(Bytes(0)),
                memory => memory,
            },
            cores: 0,
            cpu: Milli(0),
            ram: Bytes(0),
            models: request.models,
            device_memory: request.device_memory,
        }
    }
}

/// All lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskQueue {
    classes: Vec<Class>,
    vacant_classes: Vec<ClassId>,
    class_ids: FxHashMap<Demand, ClassId>,
    families: Vec<ClassFamily>,
    vacant_families: Vec<usize>,
    family_ids: FxHashMap<Request, usize>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Class {
    demand: Demand,
    family: usize,
    /// How many refer to it.
    users: u32,
    head: Option<(QueueKey, Handle)>,
    /// Those behind the head.
    rest: BTreeMap<QueueKey, Handle>,
}

/// Classes that differ in amounts alone.
#[derive(Clone, Debug)]
pub(crate) struct ClassFamily {
    /// What they have in common: a request without amounts.
    pub(crate) request: Request,
    /// How many there are.
    classes: u32,
    pub(crate) index: FitIndex,
    /// What they may need to start if nothing of ours were running. Kept up to
    /// date by `dispatch`.
    pub(crate) reach: Rooms,
    /// When that was found out, in the ledger's count of changes; 0 is never.
    pub(crate) reached: u64,
}

impl TaskQueue {
    /// The class of `demand`, with one more that refers to it.
    pub(crate) fn join_class(&mut self, demand: Demand) -> ClassId {
        if let Some(&id) = self.class_ids.get(&demand) {
            self.refer_to_class(id);
            return id;
        }
        let class = Class {
            family: self.join_family(demand.family()),
            demand: demand.clone(),
            users: 1,
            head: None,
            rest: BTreeMap::new(),
        };
        let id = if let Some(id) = self.vacant_classes.pop() {
            self.classes[id.0 as usize] = class;
            id
        } else {
            self.classes.push(class);
            ClassId(count(self.classes.len() - 1))
        };
        self.class_ids.insert(demand, id);
        id
    }

    fn join_family(&mut self, request: Request) -> usize {
        if let Some(&family) = self.family_ids.get(&request) {
            self.families[family].classes += 1;
            return family;
        }
        let family = ClassFamily {
            request: request.clone(),
            classes: 1,
            index: FitIndex::default(),
            reach: Rooms::default(),
            reached: 0,
        };
        let place = if let Some(place) = self.vacant_families.pop() {
            self.families[place] = family;
            place
        } else {
            self.families.push(family);
            self.families.len() - 1
        };
        self.family_ids.insert(request, place);
        place
    }

    /// One more refers to `class`.
    pub(crate) fn refer_to_class(&mut self, class: ClassId) {
        self.classes[class.0 as usize].users += 1;
    }

    /// One of those who referred to `class` does so no more.
    pub(crate) fn leave_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id.0 as usize];
        class.users -= 1;
        if class.users > 0 {
            return;
        }
        self.class_ids.remove(&class.demand);
        self.vacant_classes.push(id);
        let place = class.family;
        let family = &mut self.families[place];
        family.classes -= 1;
        if family.classes == 0 {
            self.family_ids.remove(&family.request);
            self.vacant_families.push(place);
        }
    }

    /// How many refer to each class, for those with any.
    #[cfg(test)]
    pub(crate) fn class_users(&self) -> impl Iterator<Item = (ClassId, u32)> {
        let ids = self.class_ids.values();
        ids.map(|&id| (id, self.classes[id.0 as usize].users))
    }

    pub(crate) fn demand(&self, class: ClassId) -> &Demand {
        &self.classes[class.0 as usize].demand
    }

    pub(crate) fn insert(&mut self, id: ClassId, key: QueueKey, task: Handle) {
        self.len += 1;
        let class = &mut self.classes[id.0 as usize];
        match class.head {
            Some((head, _)) if head < key => {
                class.rest.insert(key, task);
            }
            before => {
                class.rest.extend(before);
                class.head = Some((key, task));
                self.set_head(id, before);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: ClassId, key: QueueKey) {
        self.len -= 1;
        let class = &mut self.classes[id.0 as usize];
        match class.head {
            Some((head, _)) if head == key => {
                let before = class.head;
                class.head = class.rest.pop_first();
                self.set_head(id, before);
            }
            _ => drop(class.rest.remove(&key)),
        }
    }

    /// Tells the family who is first in a class, and who was `before`.
    fn set_head(&mut self, id: ClassId, before: Option<(QueueKey, Handle)>) {
        let class = &self.classes[id.0 as usize];
        let index = &mut self.families[class.family].index;
        if let Some((key, _)) = before {
            index.remove(key);
        }
        if let Some((key, _)) = class.head {
            index.insert(key, id, NeededAmounts::of(&class.demand));
        }
    }

    /// The first of `class`.
    pub(crate) fn head(&self, class: ClassId) -> Option<(QueueKey, Handle)> {
        self.classes[class.0 as usize].head
    }

    /// The families of those who wait.
    pub(crate) fn families(&self) -> impl Iterator<Item = &ClassFamily> {
        self.families.iter().filter(|family| !family.index.is_empty())
    }

    /// The same, to change what is known of them.
    pub(crate) fn families_mut(&mut self) -> impl Iterator<Item = &mut ClassFamily> {
        let families = self.families.iter_mut();
        families.filter(|family| !family.index.is_empty())
    }

    /// The first of all.
    pub(crate) fn first(&self) -> Option<Handle> {
        self.first_of(|family| family.index.front())
    }

    /// The first of those whom `first` says for each family.
    pub(crate) fn first_of(
        &self,
        first: impl FnMut(&ClassFamily) -> Option<(QueueKey, ClassId)>,
    ) -> Option<Handle> {
        let heads = self.families().filter_map(first);
        let (_, class) = heads.min_by_key(|&(key, _)| key)?;
        self.head(class).map(|(_, task)| task)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many stand in front of `key`.
    pub(crate) fn ahead(&self, key: QueueKey) -> usize {
        self.iter().filter(|&(_, other, _)| other < key).count()
    }

    /// Everybody, class by class.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassId, QueueKey, Handle)> {
        self.classes.iter().zip(0..).flat_map(|(class, number)| {
            let rest = class.rest.iter().map(|(&key, &task)| (key, task));
            let line = class.head.into_iter().chain(rest);
            line.map(move |(key, task)| (ClassId(number), key, task))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Length;

    fn demand(gpus: GpuRequest, ram: u64) -> Demand {
        let unknown = Length::new(None);
        Demand {
            request: Request { gpus, ram: Bytes(ram), ..Request::default() },
            bound: Bound::new(unknown, unknown),
        }
    }

    #[test]
    fn classes_and_families_that_nobody_refers_to_are_freed() {
        let mut queue = TaskQueue::default();
        for round in 0..1000 {
            let one = queue.join_class(demand(GpuRequest::None, round));
            let other = queue.join_class(demand(GpuRequest::Whole(1), round));
            assert_ne!(one, other);
            assert_eq!(queue.join_class(demand(GpuRequest::None, round)), one);
            queue.leave_class(one);
            queue.leave_class(other);
            queue.leave_class(one);
        }
        assert_eq!((queue.classes.len(), queue.families.len()), (2, 2));
        assert!(queue.class_ids.is_empty() && queue.family_ids.is_empty());
    }

    #[test]
    fn amounts_do_not_make_families() {
        let mut queue = TaskQueue::default();
        for ram in 0..100 {
            queue.join_class(demand(GpuRequest::Share(Milli(5)), ram));
            queue.join_class(demand(GpuRequest::Share(Milli(7)), ram));
        }
        assert_eq!(queue.class_ids.len(), 200);
        assert_eq!(queue.family_ids.len(), 1);
    }
}
