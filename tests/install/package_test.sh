#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cpack makes packages whose program runs: package_test.sh BUILD VERSION Deb|Tarball. 77: a tool is missing.
set -euo pipefail
build=$1 version=$2 kind=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
expect() { "$@" || { echo "failed: $*"; failed=1; }; }
# pack GENERATOR: what is in a package is tested, not how small it becomes.
pack() { (cd "$build" && cpack -D CPACK_DEBIAN_COMPRESSION_TYPE=none --config CPackConfig.cmake -B "$folder" -G "$1") >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }; }

mkdir "$folder/root"
if [[ $kind == Deb ]]; then
  for tool in dpkg-deb dpkg-shlibdeps; do
    command -v $tool >/dev/null || { echo "$tool was not found (apt-get install dpkg-dev)"; exit 77; }
  done
  pack DEB
  package=$(echo "$folder/sluice_${version}_"*.deb)
  expect grep -q '/usr/share/man/man1/sluice.1' <(dpkg-deb -c "$package")
  expect grep -q '/usr/share/zsh/vendor-completions/_sluice$' <(dpkg-deb -c "$package")
  expect grep -q 'libc6 (>=' <(dpkg-deb -f "$package" Depends)
  expect grep -q 'libfmt' <(dpkg-deb -f "$package" Depends)
  expect grep -q '/cmake/sluice/sluice-config.cmake$' <(dpkg-deb -c "$folder/libsluice-dev_${version}_"*.deb)
  if command -v lintian >/dev/null; then
    expect test -z "$(lintian --allow-root --fail-on none --tags-from-file <(printf 'no-changelog\nno-copyright-file\nno-manual-page\n') "$package")"
  fi
  dpkg -x "$package" "$folder/root"
  program=$folder/root/usr/bin/sluice
else
  pack TGZ
  tar -C "$folder/root" --strip-components=1 -xf "$folder"/sluice-"$version"-*.tar.gz
  program=$folder/root/bin/sluice
fi
said=$("$program" --version)
expect test "${said%%$'\n'*}" = "sluice $version"
exit $failed
