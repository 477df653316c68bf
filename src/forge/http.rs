//! Requests and answers, and whoever carries them.

/// A request to the interface of a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, `PATCH`, `PUT`.
    pub method: &'static str,
    /// The whole address.
    pub url: String,
    /// Lines such as `Accept: application/json`; one of them may hold a secret.
    pub headers: Vec<String>,
    /// JSON.
    pub body: Option<String>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status: 200.
    pub status: u16,
    /// What was sent.
    pub body: String,
}

/// Sends requests.
pub trait Http {
    /// Sends one.
    ///
    /// # Errors
    /// When nothing came back.
    fn send(&self, request: &Request) -> Result<Answer, ForgeError>;
}

/// Why there is no comment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// Nothing came back.
    #[error("{0}")]
    Unsent(String),
    /// The forge refused.
    #[error("{method} {url}: {status} {said}{}", fix(*status))]
    Refused {
        /// The method.
        method: &'static str,
        /// The address.
        url: String,
        /// The status.
        status: u16,
        /// The forge's words.
        said: String,
    },
    /// What came back is not what is documented.
    #[error("{method} {url}: the answer cannot be read: {problem}")]
    Unread {
        /// The method.
        method: &'static str,
        /// The address.
        url: String,
        /// Why.
        problem: String,
    },
}

/// What to do about a status.
fn fix(status: u16) -> &'static str {
    match status {
        401 => "; the token is not valid here",
        403 => {
            "; the token may not write comments: on GitHub `permissions: pull-requests: write`, \
             which a pull request of a fork does not get; on GitLab a token with the scope `api`"
        }
        404 => "; there is no such pull request, or the token cannot see it",
        _ => "",
    }
}
