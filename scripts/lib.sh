# SPDX-License-Identifier: Apache-2.0
# What the scripts share: packages, configuring and building. Source it after `set -euo pipefail`.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit

say() { printf '==> %s\n' "$*"; }

# Debian and Ubuntu packages of a build; a tool that is already on the PATH counts as installed.
packages=(g++ cmake ninja-build libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev
  libgtest-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev)
declare -A tool_of=([g++]=g++ [cmake]=cmake [ninja-build]=ninja)

# missing_packages: those of `packages`, one per line.
missing_packages() {
  local package
  for package in "${packages[@]}"; do
    if [[ -n ${tool_of[$package]:-} ]] && command -v "${tool_of[$package]}" >/dev/null; then continue; fi
    if [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) != "install ok installed" ]]; then
      printf '%s\n' "$package"
    fi
  done
}

# apt_install PACKAGE...: as root.
apt_install() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# install_packages PRESET: installs what the preset's build misses when run as root; otherwise says how and stops
# with 2. On systems without dpkg, CMake reports what it does not find.
install_packages() {
  command -v dpkg-query >/dev/null || return 0
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    printf 'These packages are missing. Install them and run this again:\n  sudo apt-get install %s\n' "${missing[*]}" >&2
    exit 2
  fi
  say "Installing ${missing[*]}"
  apt_install "${missing[@]}"
}

# install_for_tests: what tests need beside the build's packages. Those of what cannot be had skip themselves. Ends with 0
# where it installed some, after which CMake has to look again.
install_for_tests() {
  command -v dpkg-query >/dev/null || return 1
  local packages=(python3 libopenmpi-dev openmpi-bin zsh fish dpkg-dev)
  local -A tool_of=([python3]=python3 [zsh]=zsh [fish]=fish)
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 1
  if ((EUID == 0)); then
    say "Installing what tests need: ${missing[*]}"
    if apt_install "${missing[@]}"; then return 0; fi
  fi
  say "Some tests skip themselves (apt-get install ${missing[*]})"
  return 1
}

# install_browser: Chromium for the tests that open the page of a plan. It is large and nothing else needs it, so the
# tests do without where it cannot be had.
install_browser() {
  if command -v chromium >/dev/null || command -v google-chrome >/dev/null || ! command -v apt-get >/dev/null; then return 0; fi
  if ((EUID == 0)); then
    say "Installing chromium for the tests of the page (about 400 MB; --no-browser does without)"
    if apt_install chromium; then return 0; fi
  fi
  say "No browser: the tests of the page skip themselves (apt-get install chromium)"
}

# build PRESET [TARGET...]: configures build/PRESET when it is new and builds the targets, or everything.
build() {
  local preset=$1 dir="build/$1"
  shift
  if [[ ! -f $dir/build.ninja ]]; then
    say "Configuring $dir"
    cmake --preset "$preset" || return
  fi
  say "Building $dir"
  cmake --build "$dir" ${1:+--target "$@"}
}
