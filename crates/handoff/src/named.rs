//! Enumerations whose values have a name, for counters, and a number, for commands.

/// A value with a name.
pub trait Named: Copy + 'static {
    /// All values, in the order in which they are shown.
    const ALL: &'static [Self];

    /// Its place in [`ALL`](Self::ALL).
    fn index(self) -> usize;

    /// Its name, as counters and messages have it.
    fn name(self) -> &'static str;
}

/// An enumeration, each value with its name, and after a `=` the default if there is one. The numbers in commands are the places
/// in the list, from 1 on.
macro_rules! named {
    (
        $(#[$attribute:meta])*
        pub enum $type:ident $(= $default:ident)? {
            $($(#[doc = $doc:literal])* $value:ident = $name:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type { $($(#[doc = $doc])* $value,)* }

        $(impl Default for $type {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::Named for $type {
            const ALL: &'static [Self] = &[$(Self::$value,)*];

            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }
        }

        impl $type {
            /// The meaning of the value, in a sentence: its documentation.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$value => concat!($($doc),*),)* }
            }

            /// Its number in commands.
            pub const fn code(self) -> u8 {
                self as u8 + 1
            }

            /// The value of this number.
            pub fn from_code(code: u8) -> Option<Self> {
                let index = usize::from(code).checked_sub(1)?;
                <Self as $crate::Named>::ALL.get(index).copied()
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str($crate::Named::name(*self))
            }
        }
    };
}

pub(crate) use named;
