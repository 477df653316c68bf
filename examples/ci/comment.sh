#!/usr/bin/env bash
# Keeps one comment a suite on a pull request of GitHub, by `gh`.
#
#   comment.sh OWNER/REPOSITORY NUMBER REPORT always     or changes the comment that is there
#   comment.sh OWNER/REPOSITORY NUMBER REPORT never      only changes the comment that is there
#
# The first line of a report names its suite, and no reader sees it: the comment of an earlier gate
# begins with it.
set -euo pipefail
issue=repos/$1/issues/$2 report=$3 new=$4
mark=$(head -n 1 "$report")
case "$mark" in
  "<!-- regatta: "*" -->") ;;
  *) echo "$report is not a report of regatta" >&2; exit 2 ;;
esac
url=$(MARK="$mark" gh api --paginate "$issue/comments" \
  --jq '.[] | select(.body | startswith(env.MARK)) | .url' | tail -n 1)
if [ -n "$url" ]; then
  gh api --silent --method PATCH "$url" --field body=@"$report"
elif [ "$new" = always ]; then
  gh api --silent "$issue/comments" --field body=@"$report"
fi
