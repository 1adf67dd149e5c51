# Sourced by scripts/bench, after scripts/setup.sh: the peers' own virtual environment, so that
# their packages decide nothing about isopool's. About 300 MB are downloaded.
#
#   peers_venv      its folder
#   install_peers   makes it, and does nothing if it exists with exactly these packages

readonly peers_venv=build/peers-venv$variant

install_peers() {
  local stamp=$peers_venv/isopool-peers.sha256 wanted
  local packages=requirements/peers.txt files=requirements/peers-files.txt
  wanted=$(sha256sum "$packages" "$files")
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "Python packages of the peers: already there"
    return
  fi
  say "Python packages of the peers: installing (about 300 MB)"
  # One that was left half done is not mended.
  rm -rf "$peers_venv"
  logged "$python could not make a virtual environment" "$python" -m venv "$peers_venv"
  local pip=("$peers_venv/bin/python" -m pip install --disable-pip-version-check)
  local failure="pip could not install $packages: no network, or a version is gone"
  logged "$failure" "${pip[@]}" --requirement "$packages"
  logged "$failure" "${pip[@]}" --no-deps --requirement "$files"
  printf '%s\n' "$wanted" >"$stamp"
}
