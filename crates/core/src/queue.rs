//! Who waits, in order.
//!
//! Tasks with equal requests are a class: if the first of a class fits nowhere,
//! none of them does. So there is one ordered line a class, and an event looks
//! at heads of lines only, never at the crowd behind them.

use std::collections::BTreeMap;

use packhorse_model::{Priority, Request};
use rustc_hash::FxHashMap;

use crate::ledger::count;
use crate::tasks::Handle;

/// A task's place in line: by priority, then by submission. It is given once
/// and kept over retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Order {
    priority: Priority,
    // The number of the submission, its high half first. As one u64 it would
    // make the struct a third larger, a million times.
    submitted: [u32; 2],
}

/// A number for a distinct request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u32);

/// All lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    classes: Vec<Class>,
    numbers: FxHashMap<Request, ClassId>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Class {
    request: Request,
    line: BTreeMap<Order, Handle>,
}

impl Order {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a u64")]
    pub(crate) fn new(priority: Priority, submitted: u64) -> Self {
        Self {
            priority,
            submitted: [(submitted >> 32) as u32, submitted as u32],
        }
    }

    /// The same without priority.
    pub(crate) fn submitted(self) -> [u32; 2] {
        self.submitted
    }
}

impl Queue {
    /// The class of `request`. Only requests that the pool can satisfy come
    /// here, so there are never very many.
    pub(crate) fn class(&mut self, request: &Request) -> ClassId {
        if let Some(&class) = self.numbers.get(request) {
            return class;
        }
        let class = ClassId(count(self.classes.len()));
        self.classes.push(Class {
            request: request.clone(),
            line: BTreeMap::new(),
        });
        self.numbers.insert(request.clone(), class);
        class
    }

    pub(crate) fn request(&self, class: ClassId) -> &Request {
        &self.classes[class.0 as usize].request
    }

    pub(crate) fn insert(&mut self, class: ClassId, order: Order, task: Handle) {
        if self.classes[class.0 as usize]
            .line
            .insert(order, task)
            .is_none()
        {
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, class: ClassId, order: Order) {
        if self.classes[class.0 as usize].line.remove(&order).is_some() {
            self.len -= 1;
        }
    }

    /// The first of `class`.
    pub(crate) fn head(&self, class: ClassId) -> Option<(Order, Handle)> {
        let (&order, &task) = self.classes[class.0 as usize].line.first_key_value()?;
        Some((order, task))
    }

    /// The first of every class that has one.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (Order, ClassId, Handle)> {
        self.classes.iter().zip(0..).filter_map(|(class, number)| {
            let (&order, &task) = class.line.first_key_value()?;
            Some((order, ClassId(number), task))
        })
    }

    /// The first of all.
    pub(crate) fn first(&self) -> Option<Handle> {
        self.heads()
            .min_by_key(|&(order, ..)| order)
            .map(|(.., task)| task)
    }

    /// How many stand in front of `order`.
    pub(crate) fn ahead(&self, order: Order) -> usize {
        self.classes
            .iter()
            .map(|class| class.line.range(..order).count())
            .sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Everybody, class by class.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassId, Order, Handle)> {
        self.classes.iter().zip(0..).flat_map(|(class, number)| {
            class
                .line
                .iter()
                .map(move |(&order, &task)| (ClassId(number), order, task))
        })
    }
}
