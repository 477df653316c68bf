//! The one comment on a pull request: found by a line that nobody sees, and replaced.
//!
//! [`put`] is the whole of it: it asks for the comments page by page, and sends one request. How
//! a forge spells that is [`place`]'s, and who sends it [`curl`]'s.

pub mod curl;
pub mod http;
pub mod place;

use serde::Deserialize;

use http::{ForgeError, Http, Request};
use place::Place;

/// A comment, as both forges have it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    html_url: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// A comment was begun; its address, where the forge says it.
    Created(Option<String>),
    /// One that was there says the new text.
    Updated(Option<String>),
    /// None was there, and none was begun.
    Nothing,
}

/// Comments that are asked for at once.
const PAGE: usize = 100;
/// Pages that are looked through: on a pull request with more comments a second one is begun.
const PAGES: usize = 50;

/// Puts a text on a pull request: in place of the comment of which a line begins with `marker`,
/// as one of `body` does, or as a new one, which is not begun where `begin` is false.
///
/// # Errors
/// When the forge refuses, or does not answer.
pub fn put(
    http: &dyn Http,
    place: &Place,
    (marker, body): (&str, &str),
    begin: bool,
) -> Result<Done, ForgeError> {
    match find(http, place, marker)? {
        Some(id) => {
            let comment = sent(http, &place.update(id, body))?;
            Ok(Done::Updated(place.address(id, comment.html_url)))
        }
        None if begin => {
            let comment: Comment = sent(http, &place.create(body))?;
            Ok(Done::Created(place.address(comment.id, comment.html_url)))
        }
        None => Ok(Done::Nothing),
    }
}

fn find(http: &dyn Http, place: &Place, marker: &str) -> Result<Option<u64>, ForgeError> {
    for page in 1..=PAGES {
        let comments: Vec<Comment> = read(http, &place.list(page, PAGE))?;
        let own = |comment: &&Comment| {
            let body = comment.body.as_deref().unwrap_or_default();
            body.lines().any(|line| line.starts_with(marker))
        };
        if let Some(comment) = comments.iter().find(own) {
            return Ok(Some(comment.id));
        }
        if comments.len() < PAGE {
            break;
        }
    }
    Ok(None)
}

fn sent(http: &dyn Http, request: &Request) -> Result<Comment, ForgeError> {
    read(http, request)
}

fn read<T: serde::de::DeserializeOwned>(
    http: &dyn Http,
    request: &Request,
) -> Result<T, ForgeError> {
    let answer = http.send(request)?;
    let (method, url) = (request.method, request.url.clone());
    if !(200..300).contains(&answer.status) {
        return Err(ForgeError::Refused {
            method,
            url,
            status: answer.status,
            said: said(&answer.body),
        });
    }
    serde_json::from_str(&answer.body).map_err(|error| ForgeError::Unread {
        method,
        url,
        problem: error.to_string(),
    })
}

/// What a forge says of a refusal, in a few words.
fn said(body: &str) -> String {
    const LONGEST: usize = 200;
    let json: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let message = json.as_ref().and_then(|json| {
        let named = ["message", "error"].iter().find_map(|key| json.get(key));
        named.map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
    });
    let text = message.unwrap_or_else(|| body.to_owned());
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
