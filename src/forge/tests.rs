use std::cell::RefCell;

use super::http::Answer;
use super::*;

/// A forge with these comments, 100 a page.
struct Fake {
    comments: Vec<(u64, String)>,
    status: u16,
    asked: RefCell<Vec<Request>>,
}

impl Fake {
    fn with(comments: Vec<(u64, String)>) -> Fake {
        Fake {
            comments,
            status: 200,
            asked: RefCell::default(),
        }
    }
}

impl Http for Fake {
    fn send(&self, request: &Request) -> Result<Answer, ForgeError> {
        self.asked.borrow_mut().push(request.clone());
        if self.status != 200 {
            return Ok(Answer {
                status: self.status,
                body: r#"{"message": "Resource not accessible by integration"}"#.to_owned(),
            });
        }
        let body = match request.method {
            "GET" => {
                let page: usize = request.url.rsplit_once('=').unwrap().1.parse().unwrap();
                let some = self.comments.iter().skip((page - 1) * PAGE).take(PAGE);
                let some: Vec<_> = some
                    .map(|(id, body)| serde_json::json!({ "id": id, "body": body }))
                    .collect();
                serde_json::to_string(&some).unwrap()
            }
            _ => r#"{"id": 7, "body": "x", "html_url": "https://forge/1#7"}"#.to_owned(),
        };
        Ok(Answer { status: 200, body })
    }
}

fn github() -> Place {
    Place::GitHub {
        api: "https://api.github.com".to_owned(),
        repository: "a/b".to_owned(),
        number: 12,
        token: "secret".to_owned(),
    }
}

const MARKER: &str = "<!-- regatta quick -->";

#[test]
fn the_first_time_a_comment_is_begun_then_it_is_replaced() {
    let body = format!("{MARKER}\nslower");
    let empty = Fake::with(vec![(1, "Nice!".to_owned())]);
    let done = put(&empty, &github(), (MARKER, &body), true).unwrap();
    assert_eq!(done, Done::Created(Some("https://forge/1#7".to_owned())));
    let last = empty.asked.borrow().last().unwrap().clone();
    let url = "https://api.github.com/repos/a/b/issues/12/comments";
    assert_eq!((last.method, last.url.as_str()), ("POST", url));
    assert_eq!(
        last.body.unwrap(),
        serde_json::json!({ "body": body }).to_string()
    );

    // One of an earlier push, behind many others; who quotes it is not it.
    let mut comments: Vec<(u64, String)> =
        (1..=130).map(|id| (id, format!("> {MARKER}"))).collect();
    comments[117].1 = format!("{MARKER}\nold");
    let full = Fake::with(comments);
    let done = put(&full, &github(), (MARKER, &body), false).unwrap();
    assert_eq!(done, Done::Updated(Some("https://forge/1#7".to_owned())));
    let last = full.asked.borrow().last().unwrap().clone();
    let url = "https://api.github.com/repos/a/b/issues/comments/118";
    assert_eq!((last.method, last.url.as_str()), ("PATCH", url));
}

#[test]
fn none_is_begun_where_that_is_not_wanted() {
    let empty = Fake::with(Vec::new());
    let done = put(&empty, &github(), (MARKER, MARKER), false).unwrap();
    assert_eq!(done, Done::Nothing);
    assert_eq!(empty.asked.borrow().len(), 1);
}

#[test]
fn gitlab_has_notes_of_a_merge_request() {
    let place = Place::GitLab {
        api: "https://gitlab.com/api/v4".to_owned(),
        project: "group/name".to_owned(),
        number: 3,
        token: "secret".to_owned(),
    };
    let fake = Fake::with(vec![(5, MARKER.to_owned())]);
    put(&fake, &place, (MARKER, MARKER), true).unwrap();
    let asked = fake.asked.borrow();
    let url = "https://gitlab.com/api/v4/projects/group%2Fname/merge_requests/3/notes";
    assert!(asked[0].url.starts_with(url), "{}", asked[0].url);
    assert_eq!(
        (asked[1].method, asked[1].url.as_str()),
        ("PUT", format!("{url}/5").as_str())
    );
}

#[test]
fn a_refusal_says_what_to_do_and_no_secret() {
    let fake = Fake {
        status: 403,
        ..Fake::with(Vec::new())
    };
    let error = put(&fake, &github(), (MARKER, MARKER), true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("Resource not accessible"), "{error}");
    assert!(error.contains("pull-requests: write"), "{error}");
    assert!(!error.contains("secret") && !format!("{:?}", github()).contains("secret"));
}
