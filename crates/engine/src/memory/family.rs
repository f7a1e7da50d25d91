//! Kinds of command that differ only in details, such as a number or what is in a file.
//!
//! They are different kinds until evidence shows that the details do not matter: several
//! of them were measured, and all took the same. From then on one of which nothing is
//! known goes by the others, and what it is seen to take is remembered for all of them. A
//! single measurement that does not fit ends that.

use std::collections::BTreeMap;
use std::sync::Arc;

use packhorse_core::agree;
use packhorse_intake::signature::{Signature, is_member};
use packhorse_model::{Bytes, LearnedPeak, Models, PeakOrigin, TaskId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::needs::Needs;
use super::shape::{Need, Shape};
use crate::engine::{DeviceInfo, Engine};

/// What was learned of commands: by signature, and by model of GPU.
pub type LearnedPeaks = BTreeMap<String, BTreeMap<String, Vec<LearnedPeak>>>;

/// So many kinds of a family have to be measured before they can show anything.
const KINDS: usize = 3;

/// What a task is remembered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) signature: Arc<str>,
    pub(crate) family: Option<Arc<str>>,
}

impl From<Signature> for Kind {
    fn from(signature: Signature) -> Self {
        Self { signature: signature.name.into(), family: signature.family.map(Into::into) }
    }
}

impl Kind {
    /// What all that matters for it is looked up by.
    fn key(&self) -> &Arc<str> {
        self.family.as_ref().unwrap_or(&self.signature)
    }
}

/// What is known of a family.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// What was seen of all its members together.
    pooled: Shape,
    /// The kinds that were measured.
    measured: FxHashSet<Arc<str>>,
    /// The least and the most that was seen on each model.
    spread: FxHashMap<String, (Bytes, Bytes)>,
    /// The kinds that tasks wait to know about.
    pub(super) unmeasured: FxHashSet<Arc<str>>,
}

impl Family {
    /// What a member needs of which nothing else is known: something if the details were
    /// seen not to matter.
    fn need(&self, models: Models) -> Need {
        let mut spread = self.spread.values();
        if self.measured.len() >= KINDS && spread.all(|&(least, most)| agree(least, most)) {
            self.pooled.need(models)
        } else {
            Need::default()
        }
    }

    fn note(&mut self, signature: &Arc<str>, model: &str, peak: Bytes) {
        self.measured.insert(Arc::clone(signature));
        let spread = self.spread.entry(model.to_owned()).or_insert((peak, peak));
        *spread = (spread.0.min(peak), spread.1.max(peak));
    }
}

impl Needs {
    /// Whether all is here that was ever learned of this kind and those like it.
    pub(crate) fn knows(&self, kind: &Kind) -> bool {
        match &kind.family {
            Some(family) => self.families.contains_key(family),
            None => self.shapes.contains_key(&kind.signature),
        }
    }

    /// What is to be looked up for a kind, unless that has been asked for already.
    pub(crate) fn ask(&mut self, kind: &Kind) -> Option<Arc<str>> {
        let key = kind.key();
        let ask = !self.knows(kind) && self.asked.insert(Arc::clone(key));
        ask.then(|| Arc::clone(key))
    }

    /// Takes note of all that was learned of a signature, and of its members if it is a
    /// family.
    pub(crate) fn found(&mut self, about: &[DeviceInfo], key: &Arc<str>, found: LearnedPeaks) {
        self.asked.remove(key);
        if self.families.contains_key(key) {
            return;
        }
        let mut family = Family::default();
        let mut pooled: BTreeMap<String, Vec<LearnedPeak>> = BTreeMap::new();
        for (signature, models) in found {
            if *signature != **key && !is_member(&signature, key) {
                continue;
            }
            let signature: Arc<str> = signature.into();
            for (model, peaks) in &models {
                let over = peaks.iter().filter(|it| it.origin != PeakOrigin::Growing);
                for peak in over {
                    family.note(&signature, model, peak.peak);
                }
                pooled.entry(model.clone()).or_default().extend(peaks);
            }
            let shape = Shape::new(about, models);
            self.shapes.entry(signature).or_insert(shape);
        }
        family.pooled = Shape::new(about, pooled);
        self.families.insert(Arc::clone(key), family);
        self.shape(about, key);
    }

    /// What is known of a signature, if only that nothing is.
    pub(super) fn shape(&mut self, about: &[DeviceInfo], signature: &Arc<str>) -> &mut Shape {
        let shape = self.shapes.entry(Arc::clone(signature));
        shape.or_insert_with(|| Shape::new(about, BTreeMap::new()))
    }

    /// A task waits to know what its kind needs.
    pub(super) fn wait(&mut self, about: &[DeviceInfo], kind: &Kind, task: TaskId) {
        let shape = self.shape(about, &kind.signature);
        shape.waiting.insert(task);
        let is_measured = shape.need(Models::ANY).memory.is_some();
        let family = kind.family.as_ref().filter(|_| !is_measured);
        if let Some(family) = family.and_then(|family| self.families.get_mut(family)) {
            family.unmeasured.insert(Arc::clone(&kind.signature));
        }
    }

    /// What a task of this kind needs.
    pub(super) fn need(&self, kind: &Kind, models: Models) -> Need {
        let own = self.shapes.get(&kind.signature);
        let own = own.map(|shape| shape.need(models)).unwrap_or_default();
        let family = kind.family.as_ref().filter(|_| own.memory.is_none());
        let family = family.and_then(|family| self.families.get(family));
        let need = family.map(|family| family.need(models));
        let need = need.filter(|need| need.memory.is_some()).unwrap_or(own);
        Need { raised: own.raised, ..need }
    }

    /// What a measurement of this kind is remembered by: if its details do not matter, one
    /// name is enough for all of its family.
    pub(crate) fn remembered_as<'a>(&self, kind: &'a Kind) -> &'a Arc<str> {
        let own = self.shapes.get(&kind.signature);
        let is_measured = own.is_some_and(|shape| shape.need(Models::ANY).memory.is_some());
        if is_measured || self.need(kind, Models::ANY).memory.is_none() {
            &kind.signature
        } else {
            kind.key()
        }
    }

    /// Takes note of what a task of this kind was seen to need, which is remembered as
    /// `signature`. Returns who else has to know: the kinds that go by the family, if that
    /// changes what they need.
    pub(super) fn learn_for_family(
        &mut self,
        kind: &Kind,
        signature: &Arc<str>,
        model: &str,
        peak: LearnedPeak,
    ) -> Vec<Arc<str>> {
        let family = kind.family.as_ref();
        let Some(family) = family.and_then(|family| self.families.get_mut(family)) else {
            return Vec::new();
        };
        let before = family.need(Models::ANY);
        let changed = family.pooled.add(model, peak);
        family.note(signature, model, peak.peak);
        family.unmeasured.remove(signature);
        let now = family.need(Models::ANY);
        if now == before && !(changed && now.memory.is_some()) {
            return Vec::new();
        }
        let mut others: Vec<Arc<str>> = family.unmeasured.iter().cloned().collect();
        others.sort_unstable();
        others
    }

    /// A task does not wait to know any more what its kind needs.
    pub(super) fn leave(&mut self, kind: &Kind, task: TaskId) {
        let Some(shape) = self.shapes.get_mut(&kind.signature) else {
            return;
        };
        shape.waiting.remove(&task);
        shape.given.remove(&task);
        let family = kind.family.as_ref().filter(|_| shape.waiting.is_empty());
        if let Some(family) = family.and_then(|family| self.families.get_mut(family)) {
            family.unmeasured.remove(&kind.signature);
            // There may be as many kinds as tasks.
            if shape.is_idle() {
                self.shapes.remove(&kind.signature);
            }
        }
    }
}

impl Engine {
    pub(crate) fn peaks_found(&mut self, key: &Arc<str>, found: LearnedPeaks) {
        self.needs.found(&self.devices, key, found);
        self.submit_ready();
    }
}
