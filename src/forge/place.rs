//! Where the comments of a pull request lie.
//!
//! - GitHub: <https://docs.github.com/rest/issues/comments>
//! - GitLab: <https://docs.gitlab.com/api/notes/#merge-requests>

use serde_json::json;

use super::http::Request;

/// A pull request of GitHub, or a merge request of GitLab.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// GitHub's, also of a server of one's own.
    GitHub {
        /// `https://api.github.com`, `https://github.example.org/api/v3`.
        api: String,
        /// `owner/name`.
        repository: String,
        /// The pull request's number.
        number: u64,
        /// May write comments.
        token: String,
    },
    /// GitLab's.
    GitLab {
        /// `https://gitlab.com/api/v4`.
        api: String,
        /// The project's number, or its path.
        project: String,
        /// The merge request's number in its project.
        number: u64,
        /// Of the scope `api`.
        token: String,
    },
}

impl std::fmt::Debug for Place {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.comments())
    }
}

impl Place {
    /// A page of comments, the first being 1.
    pub fn list(&self, page: usize, many: usize) -> Request {
        self.request(
            "GET",
            format!("{}?per_page={many}&page={page}", self.comments()),
            None,
        )
    }

    /// A new comment.
    pub fn create(&self, body: &str) -> Request {
        self.request("POST", self.comments(), Some(body))
    }

    /// Another text for a comment.
    pub fn update(&self, id: u64, body: &str) -> Request {
        match self {
            Place::GitHub {
                api, repository, ..
            } => {
                let url = format!("{api}/repos/{repository}/issues/comments/{id}");
                self.request("PATCH", url, Some(body))
            }
            Place::GitLab { .. } => {
                let url = format!("{}/{id}", self.comments());
                self.request("PUT", url, Some(body))
            }
        }
    }

    /// Where people see a comment: as the forge says it.
    pub(super) fn address(&self, id: u64, said: Option<String>) -> Option<String> {
        said.or_else(|| match self {
            Place::GitHub { .. } => None,
            Place::GitLab { .. } => Some(format!("note {id} of {}", self.comments())),
        })
    }

    fn comments(&self) -> String {
        match self {
            Place::GitHub {
                api,
                repository,
                number,
                ..
            } => format!("{api}/repos/{repository}/issues/{number}/comments"),
            Place::GitLab {
                api,
                project,
                number,
                ..
            } => {
                let project = project.replace('/', "%2F");
                format!("{api}/projects/{project}/merge_requests/{number}/notes")
            }
        }
    }

    fn request(&self, method: &'static str, url: String, body: Option<&str>) -> Request {
        let agent = format!("User-Agent: regatta/{}", env!("CARGO_PKG_VERSION"));
        let own = match self {
            Place::GitHub { token, .. } => vec![
                format!("Authorization: Bearer {token}"),
                "Accept: application/vnd.github+json".to_owned(),
                "X-GitHub-Api-Version: 2022-11-28".to_owned(),
            ],
            Place::GitLab { token, .. } => vec![
                format!("PRIVATE-TOKEN: {token}"),
                "Accept: application/json".to_owned(),
            ],
        };
        let json = body.map(|_| "Content-Type: application/json".to_owned());
        Request {
            method,
            url,
            headers: [own, vec![agent], json.into_iter().collect()].concat(),
            body: body.map(|body| json!({ "body": body }).to_string()),
        }
    }
}
