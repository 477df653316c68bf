# Functions of the transcripts.

# suite NAME VARIANTS [WORD...]: writes NAME.toml, six cases of each variant on the fake worker, which is
# started with these words; standard input, where it is not the transcript's, is added.
suite() {
  local name="$1" variants="$2" words= word
  shift 2
  for word; do words="$words, \"$word\""; done
  cat >"$name.toml" <<END
description = "$name"
[measure]
invocations = 5
samples = 10
timeout_s = 60
[policy]
threshold = 0.02
[workers]
fake = ["fake-worker"$words]
[[sweep]]
variants = [$(printf '"fake/%s", ' $variants | sed 's/, $//')]
seq = [32, 48, 64]
head_dim = 16
direction = ["forward", "backward"]
END
  cat >>"$name.toml"
}

# checkout: the folder as a git checkout with all that is in it committed.
checkout() {
  git init -q -b main
  printf 'reports\ncache\nbaselines\n' >>.gitignore
  commit one
}

# The same commits have the same names.
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z

commit() {
  git add -A
  git -c user.name=Ann -c user.email=ann@example.org commit -q -m "$1"
}

# What a command printed, where only a part of it is shown; exit codes of regatta since the last command.
said=$(mktemp) codes=$(mktemp)
trap 'rm -f $said $codes' EXIT

# regatta WORD...: the program. Its exit code is kept, for where a pipe or a further command hides it.
regatta() {
  local code=0
  command regatta "$@" || code=$?
  [ $code = 0 ] || echo $code >>$codes
  return $code
}

# ended WORD: the end of a command, with its exit code and those of regatta that are not 0. An
# output that was read in part is kept whole, for a test that fails.
commands=0
ended() {
  local code=$?
  cp $said "$OUTPUTS/$commands"
  commands=$((commands + 1))
  printf '\n%s%s %s\n' "$1" $code "$(paste -sd ' ' $codes)"
  : >$codes
}

# quietly COMMAND...: its exit code alone.
quietly() {
  "$@" >$said 2>&1
}

# first COMMAND...: the first line of its standard output.
first() {
  local code
  "$@" >$said 2>/dev/null
  code=$?
  head -n 1 $said
  return $code
}

# shows PATTERN COMMAND...: the lines of all it prints that match.
shows() {
  local pattern="$1" code
  shift
  "$@" >$said 2>&1
  code=$?
  grep -e "$pattern" $said
  return $code
}

# says WORDS COMMAND...: these words, where a command prints them, whatever the lines that it breaks.
says() {
  local words="$1" code
  shift
  "$@" >$said 2>&1
  code=$?
  tr -s ' \n' '  ' <$said | grep -oFe "$words" | sort -u
  return $code
}

# edit FILE FROM TO: puts TO in the place of FROM.
edit() {
  from="$2" to="$3" perl -0pi -e 's/\Q$ENV{from}\E/$ENV{to}/g or die "$ARGV has no $ENV{from}\n"' "$1"
}

# One invocation of few samples, for what looks at results and not at times.
short='\n[measure]\ninvocations = 1\nsamples = 5\nbudget_ms = 20\n'

top=$PWD

# example NAME: a folder of its own with a committed copy of an example.
example() {
  cd "$(mktemp -d $top/example-XXXXXX)"
  cp -r $SOURCE/examples/$1/. .
  printf "$short" >>$1.toml
  echo __pycache__ >.gitignore
  checkout
}

# declares CODE: a folder of its own with a committed suite, of standard input, and the code of its function.
declares() {
  cd "$(mktemp -d $top/declared-XXXXXX)"
  printf "$1" >mine.py
  { cat; printf "$short"; } >mine.toml
  echo __pycache__ >.gitignore
  checkout
}
