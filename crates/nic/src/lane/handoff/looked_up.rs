//! A worker gives the figures of its connections, of a few at a time, in its turn.

use std::sync::mpsc::Sender;

use tcp::Stack;

use super::figures::Page;
use super::informed;
use super::rings::Rings;

/// Connections of which the figures are given at once.
const PAGE: usize = 64;
/// Numbers that are looked at for them.
const LOOKS: u32 = 16 * PAGE as u32;

/// Answers one who asks for those from this number on. That one does not wait any more is no error.
pub(super) fn answer(app: &Rings, stack: &Stack, from: u32, to: &Sender<Page>) {
    let _ = to.send(page(app, stack, from));
}

fn page(app: &Rings, stack: &Stack, from: u32) -> Page {
    let end = app.all.numbers();
    let mut all = Vec::with_capacity(PAGE);
    let mut number = from;
    while number < end && number - from < LOOKS && all.len() < PAGE {
        let found =
            app.all.get(number).and_then(|one| Some((one.path, informed::figures(one, stack)?)));
        all.extend(found);
        number += 1;
    }
    Page { all, next: (number < end).then_some(number) }
}
