//! The pages that the responder makes of files: what it was asked for, an ad and the file, as SPECweb99's rules have it
//! ("SPECweb99 Release 1.02 Run and Reporting Rules", SPEC, section 2.3).

use super::files::File;

/// Ads that there are, and users, who have each been shown one before.
pub(super) const ADS: u32 = 360;
pub(super) const USERS: u32 = 10_000;

/// What is made of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Page {
    /// A page with the next ad.
    Standard,
    /// One with an ad for this user, who was shown that one last.
    Custom { user: u32, last_ad: u32 },
    /// One that a user gets who has posted something.
    Posted { user: u32 },
}

impl Page {
    /// The name that it is asked for by.
    pub(super) const fn script(self) -> &'static str {
        match self {
            Page::Standard => "/dynamic/standard",
            Page::Custom { .. } => "/dynamic/custom",
            Page::Posted { .. } => "/dynamic/post",
        }
    }

    /// What stands before the file, and behind it. It is as long with whatever ad.
    pub(super) fn around(self, file: File, ad: u32) -> (String, &'static str) {
        let (script, path) = (self.script(), file.path());
        let before = format!(
            "<html>\n<head><title>Dynamic content</title></head>\n<body>\n\
             <p>SCRIPT_NAME = {script}\n<p>FILE = {path}\n<p>AD = {ad:03}\n<pre>\n"
        );
        (before, "\n</pre>\n</body></html>\n")
    }

    /// Its length, in bytes.
    pub(super) fn len(self, file: File) -> usize {
        let (before, behind) = self.around(file, 0);
        before.len() + file.len() + behind.len()
    }
}
