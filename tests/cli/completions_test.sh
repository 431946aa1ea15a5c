#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What shells offer: completions_test.sh SHELL PROGRAM. 77: the shell is not here.
set -euo pipefail
shell=$1
command -v "$shell" >/dev/null || { echo "$shell was not found (apt-get install $shell)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$2" installed "$shell" >"$folder/script"
export SCRIPT=$folder/script
mkdir "$folder/here"
touch "$folder/here/run.toml"
cd "$folder/here"
failed=0

# offered WORD...: what the shell offers for the last word, a line each.
offered() {
  case $1 in
    bash)
      bash -c '
        source "$SCRIPT"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _sluice
        printf "%s\n" "${COMPREPLY[@]}"' bash "${@:2}" ;;
    zsh)
      # Stand-ins for what the completion system of a terminal provides: they print what they would offer.
      zsh -fc '
        compdef() { :; }
        compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@"; }
        _describe() { print -l -- "${(@)${(P)2}%%:*}"; }
        _files() { print -l -- *; }
        _alternative() { print -- "$@"; _files; }
        act() {
          case $1 in
            \(*) print -l -- ${=${1#\(}%\)} ;;
            ?*) eval $1 ;;
          esac
        }
        _arguments() {
          local spec current=${words[CURRENT]} previous=${words[CURRENT-1]} option action
          for spec in "$@"; do
            option=${${spec%%\[*}#\*} action=${spec##*:}
            if [[ $previous == $option && $spec == *]:* ]]; then
              act $action
              return
            fi
          done
          for spec in "$@"; do
            [[ $current == -* && $spec == (\*|)--* ]] && print -- ${${spec%%\[*}#\*}
            [[ $current != -* && $spec == <->:* ]] && act "${spec##*:}"
          done
          return 0
        }
        source "$SCRIPT"
        words=("$@") CURRENT=$#
        _sluice' zsh "${@:2}" ;;
    fish) fish --no-config -c 'source $SCRIPT; complete -C "'"${*:2}"'"' | cut -f1 ;;
  esac
}
# expect OFFER WORD...: it is among what is offered. refuse: it is not.
expect() {
  local all
  all=$(offered "$shell" "${@:2}")
  grep -qxF -- "$1" <<<"$all" && return
  printf '%s: "%s" offers:\n%s\nexpected: %s\n\n' "$shell" "${*:2}" "$all" "$1"
  failed=1
}
refuse() {
  local all
  all=$(offered "$shell" "${@:2}")
  grep -qxF -- "$1" <<<"$all" || return 0
  printf '%s: "%s" offers %s\n\n' "$shell" "${*:2}" "$1"
  failed=1
}

"$shell" -n "$SCRIPT"
expect train sluice tr
expect --version sluice --
refuse installed sluice ''
expect --device-mem sluice train --d
expect --frontier sluice plan --
refuse --frontier sluice train --
expect train.learning_rate= sluice train --set train.l
expect memory.device= sluice plan --set mem
expect rtx4090 sluice plan --machine rtx
expect run.toml sluice train r
expect plan sluice help p
exit $failed
