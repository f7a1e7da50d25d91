//! Values that may be left out, and structs of them.

use std::collections::BTreeMap;

use crate::Command;

/// A value that may be left out, and is then taken from elsewhere.
pub(crate) trait Optional: Clone {
    fn is_left_out(&self) -> bool;

    /// Takes what is left out here from `defaults`.
    fn fill(&mut self, defaults: &Self) {
        if self.is_left_out() {
            self.clone_from(defaults);
        }
    }
}

impl<T: Clone> Optional for Option<T> {
    fn is_left_out(&self) -> bool {
        self.is_none()
    }
}

impl<T: Clone> Optional for Vec<T> {
    fn is_left_out(&self) -> bool {
        self.is_empty()
    }
}

impl Optional for bool {
    fn is_left_out(&self) -> bool {
        !self
    }
}

impl Optional for Command {
    fn is_left_out(&self) -> bool {
        self.is_empty()
    }
}

/// What either has is there; its own values win.
impl<T: Clone> Optional for BTreeMap<String, T> {
    fn is_left_out(&self) -> bool {
        self.is_empty()
    }

    fn fill(&mut self, defaults: &Self) {
        for (name, value) in defaults {
            if !self.contains_key(name) {
                self.insert(name.clone(), value.clone());
            }
        }
    }
}

/// A struct of [`Optional`] fields, made by [`optional_fields`].
pub(crate) trait OptionalFields {
    /// How many fields are not left out.
    fn fields_given(&self) -> usize;

    /// Takes what is left out here from `defaults`.
    fn fill(&mut self, defaults: &Self);
}

/// A struct whose every field may be left out. What is done with each of them is
/// made here, so that a new field is named in one place and forgotten nowhere:
/// it is not written if it is left out, and can be filled from another struct.
macro_rules! optional_fields {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$field_attribute:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $(
                $(#[$field_attribute])*
                #[serde(skip_serializing_if = "Optional::is_left_out")]
                pub $field: $type,
            )*
        }

        impl OptionalFields for $name {
            fn fields_given(&self) -> usize {
                let given = [$(!self.$field.is_left_out()),*];
                given.into_iter().filter(|given| *given).count()
            }

            fn fill(&mut self, defaults: &Self) {
                $(self.$field.fill(&defaults.$field);)*
            }
        }
    };
}

pub(crate) use optional_fields;
