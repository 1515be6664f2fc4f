//! What the responder answers: pages with ads, in turn or for their users, and what users post is kept in a file
//! ("SPECweb99 Release 1.02 Run and Reporting Rules", SPEC, sections 2.3.4 to 2.3.7).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::super::page::{ADS, Page, USERS};
use super::super::request::Request;
use super::fastcgi;

/// Traits that a user and those whom an ad is for have in common at least.
const IN_COMMON: u32 = 6;

/// Files, ads and users.
#[derive(Debug)]
pub(super) struct Content {
    /// Where the files are.
    root: PathBuf,
    /// What was posted.
    posts: fs::File,
    /// Traits of each ad's audience, and of each user, a bit each.
    ads: Vec<u16>,
    users: Vec<u16>,
    /// The ad that was shown last in turn.
    last_ad: u32,
}

impl Content {
    /// That of the files there.
    pub(super) fn open(root: &Path) -> io::Result<Content> {
        let posts = OpenOptions::new().create(true).append(true).open(root.join("posts"))?;
        let traits = |seed, count: u32| {
            let random = degen::Random::new(seed);
            (0..count).map(|number| random.at(number.into()) as u16).collect()
        };
        let (ads, users) = (traits(1, ADS), traits(2, USERS));
        Ok(Content { root: root.to_owned(), posts, ads, users, last_ad: 0 })
    }

    /// What a request is answered with, as CGI has it: a header and a page.
    pub(super) fn answer(&mut self, request: &fastcgi::Request) -> io::Result<Vec<u8>> {
        let params = request.params().map_err(io::Error::other)?;
        let param = |name| params.get(name).copied().unwrap_or_default();
        let body = str::from_utf8(&request.body).unwrap_or_default();
        let [script, query, cookie] = ["SCRIPT_NAME", "QUERY_STRING", "HTTP_COOKIE"].map(param);
        match Request::parse(script, query, cookie, body) {
            Some(Request { file, page: Some(page) }) => {
                let ad = self.ad(page);
                if let Page::Posted { user } = page {
                    writeln!(self.posts, "user={user} file={} ad={ad}", file.path())?;
                }
                let file_bytes = fs::read(self.root.join(file.path()))?;
                let (before, behind) = page.around(file, ad);
                let length = before.len() + file_bytes.len() + behind.len();
                let header = format!(
                    "Status: 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
                     Set-Cookie: ad={ad:03}\r\n\r\n{before}"
                );
                Ok([header.as_bytes(), &file_bytes, behind.as_bytes()].concat())
            }
            _ => Ok(b"Status: 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
        }
    }

    /// The ad that a page has: the next after the last one, for a user the next that is for such users.
    fn ad(&mut self, page: Page) -> u32 {
        if let Page::Custom { user, last_ad } = page {
            let user = self.users[user as usize];
            let is_for = |ad: &u32| (self.ads[*ad as usize] & user).count_ones() >= IN_COMMON;
            let after = |number| (last_ad + number) % ADS;
            return (1..=ADS).map(after).find(is_for).unwrap_or(after(1));
        }
        self.last_ad = (self.last_ad + 1) % ADS;
        self.last_ad
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use super::*;

    fn content(root: &Path) -> Content {
        fs::create_dir_all(root).unwrap();
        Content::open(root).unwrap()
    }

    #[test]
    fn ads_take_turns_or_are_for_their_users() {
        let root = std::env::temp_dir().join(format!("wharf-ads-{}", std::process::id()));
        let mut content = content(&root);
        let turns: Vec<u32> = (0..ADS).map(|_| content.ad(Page::Standard)).collect();
        assert!(turns.iter().copied().eq((1..ADS).chain([0])));
        let mut looked = 0;
        for user in 0..USERS {
            let last_ad = user % ADS;
            let ad = content.ad(Page::Custom { user, last_ad });
            looked += (ad + ADS - last_ad - 1) % ADS + 1;
            let in_common = content.ads[ad as usize] & content.users[user as usize];
            assert!(in_common.count_ones() >= IN_COMMON || ad == (last_ad + 1) % ADS);
        }
        // Some are looked at for each.
        assert!((2..60).contains(&(looked / USERS)), "{looked}");
        fs::remove_dir_all(root).unwrap();
    }
}
