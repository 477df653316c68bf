//! stub
use super::{Document, Exporter, RenderError, Report};
pub(super) struct Html;
impl Exporter for Html {
    fn export(&self, _report: &Report) -> Result<Vec<Document>, RenderError> {
        Ok(vec![Document {
            name: "index.html",
            text: String::new(),
        }])
    }
}
