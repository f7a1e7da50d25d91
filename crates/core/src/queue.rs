//! Who waits, in order.
//!
//! Tasks with equal requests and equal bounds on their duration are a class: if
//! the first of a class may start nowhere, none of them may. So there is one
//! ordered line a class, and an event looks at heads of lines only, never at
//! the crowd behind them. Classes that differ in the amount of memory alone
//! have one shape and stand on one [`Shelf`], so that it need not look at every
//! head either.

use std::collections::BTreeMap;

use packhorse_model::{Bytes, MemoryRequest, Request};
use rustc_hash::FxHashMap;

use crate::ledger::count;
use crate::queue_key::QueueKey;
use crate::shelf::Shelf;
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
    /// The amount of memory that it needs of each device, where that counts.
    pub(crate) fn memory(&self) -> Bytes {
        match self.request.memory {
            MemoryRequest::Bytes(memory) => memory,
            MemoryRequest::Uncounted | MemoryRequest::Whole => Bytes(0),
        }
    }

    /// The same without the amount of memory.
    fn shape(&self) -> Self {
        let mut shape = self.clone();
        if let MemoryRequest::Bytes(memory) = &mut shape.request.memory {
            *memory = Bytes(0);
        }
        shape
    }
}

/// All lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskQueue {
    classes: Vec<Class>,
    numbers: FxHashMap<Demand, ClassId>,
    shapes: Vec<Shape>,
    shape_numbers: FxHashMap<Demand, usize>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Class {
    demand: Demand,
    shape: usize,
    line: BTreeMap<QueueKey, Handle>,
}

/// Classes that differ in memory alone.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// A demand of this shape, for no memory.
    pub(crate) demand: Demand,
    pub(crate) shelf: Shelf,
    /// The most memory that one of this shape could be promised if nothing of
    /// ours were running; nothing if none could start even then. Kept up by
    /// `dispatch`.
    pub(crate) reach: Option<Bytes>,
    /// When that was found out, in the ledger's count of changes; 0 is never.
    pub(crate) reached: u64,
}

impl TaskQueue {
    /// The class of `demand`. Only requests that the pool can satisfy come
    /// here, so there are never very many.
    pub(crate) fn class(&mut self, demand: Demand) -> ClassId {
        if let Some(&class) = self.numbers.get(&demand) {
            return class;
        }
        let class = ClassId(count(self.classes.len()));
        let shape = demand.shape();
        let next = self.shapes.len();
        let number = *self.shape_numbers.entry(shape.clone()).or_insert(next);
        if number == next {
            self.shapes.push(Shape {
                demand: shape,
                shelf: Shelf::default(),
                reach: None,
                reached: 0,
            });
        }
        self.classes.push(Class {
            demand: demand.clone(),
            shape: number,
            line: BTreeMap::new(),
        });
        self.numbers.insert(demand, class);
        class
    }

    pub(crate) fn demand(&self, class: ClassId) -> &Demand {
        &self.classes[class.0 as usize].demand
    }

    pub(crate) fn insert(&mut self, class: ClassId, order: QueueKey, task: Handle) {
        let line = &mut self.classes[class.0 as usize].line;
        if line.insert(order, task).is_none() {
            self.len += 1;
        }
        self.set_head(class);
    }

    pub(crate) fn remove(&mut self, class: ClassId, order: QueueKey) {
        let line = &mut self.classes[class.0 as usize].line;
        if line.remove(&order).is_some() {
            self.len -= 1;
        }
        self.set_head(class);
    }

    fn set_head(&mut self, number: ClassId) {
        let class = &self.classes[number.0 as usize];
        let head = class.line.first_key_value().map(|(&order, _)| order);
        let shape = &mut self.shapes[class.shape];
        shape.shelf.set(class.demand.memory(), number, head);
    }

    /// The first of `class`.
    pub(crate) fn head(&self, class: ClassId) -> Option<(QueueKey, Handle)> {
        let (&order, &task) = self.classes[class.0 as usize].line.first_key_value()?;
        Some((order, task))
    }

    /// The shapes of those who wait.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = &Shape> {
        self.shapes.iter().filter(|shape| !shape.shelf.is_empty())
    }

    /// The same, to change what is known of them.
    pub(crate) fn shapes_mut(&mut self) -> impl Iterator<Item = &mut Shape> {
        let shapes = self.shapes.iter_mut();
        shapes.filter(|shape| !shape.shelf.is_empty())
    }

    /// The first of all.
    pub(crate) fn first(&self) -> Option<Handle> {
        self.first_within(|_| Some(Bytes(u64::MAX)))
    }

    /// The first of all that need no more memory than `limit` says for their
    /// shape.
    pub(crate) fn first_within(&self, limit: impl Fn(&Shape) -> Option<Bytes>) -> Option<Handle> {
        let heads = self
            .shapes
            .iter()
            .filter_map(|shape| shape.shelf.least(limit(shape)?));
        let (_, class) = heads.min_by_key(|&(order, _)| order)?;
        self.head(class).map(|(_, task)| task)
    }

    /// How many stand in front of `order`.
    pub(crate) fn ahead(&self, order: QueueKey) -> usize {
        self.classes
            .iter()
            .map(|class| class.line.range(..order).count())
            .sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Everybody, class by class.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassId, QueueKey, Handle)> {
        self.classes.iter().zip(0..).flat_map(|(class, number)| {
            class
                .line
                .iter()
                .map(move |(&order, &task)| (ClassId(number), order, task))
        })
    }
}
