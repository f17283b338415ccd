# shellcheck shell=bash
# Sourced by the scripts beside it, from the clone's root folder.

# Runs a command as the clone's owner, so that root leaves no file of its own in a user's clone.
as_owner() {
  local uid gid entry home groups=--clear-groups
  uid=$(stat -c %u .)
  if ((EUID != 0 || uid == 0)); then
    "$@"
    return
  fi
  gid=$(stat -c %g .)
  home=$PWD/build/home  # For a user id that has no name, as in a container.
  if entry=$(getent passwd "$uid"); then
    IFS=: read -r _ _ _ gid _ home _ <<<"$entry"
    groups=--init-groups
  fi
  setpriv --reuid "$uid" --regid "$gid" "$groups" \
    env -u SUDO_UID -u SUDO_GID -u SUDO_USER -u SUDO_COMMAND HOME="$home" "$@"
}

# Runs a build by `pip -v` with its output in a log, and `say`s how far it is (python/loomnet_build.py).
logged_build() {
  local log=$1 line
  shift
  LOOMNET_BUILD_PROGRESS=stdout "$@" 2>&1 | as_owner tee "$log" | while IFS= read -r line; do
    if [[ $line =~ ^' '*'loomnet: '(.*) ]]; then say "${BASH_REMATCH[1]}"; fi
  done
}

# Reads the lines that a command prints into the array of this name. A process substitution would hide
# that the command failed, and leave the lines that it had printed until then.
lines_of() {
  # shellcheck disable=SC2034  # the caller reads it
  local -n into=$1
  local text
  shift
  text=$("$@") || { printf '%s: cannot find out: %s\n' "${0##*/}" "$*" >&2; exit 2; }
  into=()
  [[ -z $text ]] || mapfile -t into <<<"$text"
}

# What two build folders compile alike is compiled once. ccache then counts neither the folders' names nor
# the language of the compiler's messages, which script/bootstrap sets and other scripts leave.
share_objects() {
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}"
  export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}locale,pch_defines,time_macros"
}

# Where packages come from, as far as the environment says it: indexes, proxies and certificates.
package_settings() {
  local proxies='(https?|all|no|ftp)_proxy|(HTTPS?|ALL|NO|FTP)_PROXY'
  local certificates='SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO'
  env | lines_with -E "^(PIP_[A-Z_]+|$proxies|$certificates)="
}

# Compiles Python's modules at once, so that no start has to: PYTHON FOLDER… pip does it on one core alone. Where
# no process can be started for the other cores, as without /dev/shm, this goes on with one. Files that are for
# other Pythons, which a few packages bring, are left.
compile_modules() {
  local python=$1
  shift
  as_owner "$python" -m compileall -q -j 0 "$@" >/dev/null 2>&1 ||
    as_owner "$python" -m compileall -q "$@" >/dev/null 2>&1 || true
}

# grep, for which no such line is an answer and no failure.
lines_with() { grep "$@" || (($? == 1)); }
