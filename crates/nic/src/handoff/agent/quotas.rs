//! How many connections each user has at the NIC, or on their way.

use std::collections::HashMap;

/// Most of each kind that one user may have; 0 for no bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerUser {
    pub(crate) connections: u32,
    pub(crate) sessions: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Quotas {
    /// Most of one user.
    most: u32,
    all: HashMap<u32, u32>,
}

impl Quotas {
    /// So many for each user, or 0 for no such bound.
    pub(super) fn new(most: u32) -> Self {
        Quotas { most: if most == 0 { u32::MAX } else { most }, all: HashMap::new() }
    }

    /// Whether the user may have one more.
    pub(super) fn has_room(&self, user: u32) -> bool {
        self.all.get(&user).is_none_or(|count| *count < self.most)
    }

    /// The user has one more.
    pub(super) fn take(&mut self, user: u32) {
        *self.all.entry(user).or_default() += 1;
    }

    /// The user has one less.
    pub(super) fn give(&mut self, user: u32) {
        if let Some(count) = self.all.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.all.remove(&user);
            }
        }
    }

    /// Whether nobody has any.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nobody_has_more_than_the_quota(most in 0_u32..5, steps: Vec<(bool, bool)>) {
            let mut quotas = Quotas::new(most);
            let mut counts = [0_u32; 2];
            for (is_more, who) in steps {
                let (user, count) = (u32::from(who), &mut counts[usize::from(who)]);
                prop_assert_eq!(quotas.has_room(user), most == 0 || *count < most);
                if is_more && quotas.has_room(user) {
                    quotas.take(user);
                    *count += 1;
                } else if !is_more && *count > 0 {
                    quotas.give(user);
                    *count -= 1;
                }
                prop_assert_eq!(quotas.is_empty(), counts == [0, 0]);
            }
        }
    }
}
