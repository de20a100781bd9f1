#!/bin/sh
# Stands in for kubectl in tests. $FAKE_KUBECTL is a folder: every call is appended to `calls`, one a line, its input to
# `input`. The answer is the first of the folders `answers/*` whose file `pattern`, a shell pattern, matches the
# arguments: `out` and `err` are printed, then, for as long as the file `hold` exists, it runs on; `code` is its end.
arguments="$*"
echo "$arguments" >>"$FAKE_KUBECTL/calls"
case " $arguments " in *" -f - "*) cat >>"$FAKE_KUBECTL/input" ;; esac
for answer in "$FAKE_KUBECTL"/answers/*/; do
  pattern=$(cat "$answer/pattern")
  # shellcheck disable=SC2254
  case "$arguments" in
    $pattern)
      cat "$answer/out"
      cat "$answer/err" >&2
      while [ -e "$answer/hold" ]; do sleep 0.02; done
      exit "$(cat "$answer/code")"
      ;;
  esac
done
echo "error: the test has no answer for: $arguments" >&2
exit 99
