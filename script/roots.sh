# shellcheck shell=bash
# Sourced by script/fresh and script/wheels: minimal roots of distributions, each in namespaces of its own,
# with a clone of this tree's last commit in it. Packages, wheels and compiled objects are kept in
# /var/cache/loomnet/fresh/cache. Mounts, processes and interfaces end with their namespaces, and the roots
# are removed, whatever happens. The script that sources it defines `say` and `skip`.

readonly PLACE=/var/cache/loomnet/fresh
readonly CACHE=$PLACE/cache  # root's alone: no user of this machine can put a package into it
readonly LIMIT=45m  # for one root, on a machine that does much else; alone it takes 3 to 6 minutes
# name, suite, package archive where this machine's apt has no other, components
readonly ROOTS=(
  'debian-12 bookworm http://deb.debian.org/debian http://deb.debian.org/debian-security main'
  'debian-13 trixie http://deb.debian.org/debian http://deb.debian.org/debian-security main'
  'ubuntu-24.04 noble http://archive.ubuntu.com/ubuntu http://archive.ubuntu.com/ubuntu main,universe'
)
# Debian 12 packages no keys of Ubuntu's archive. This file of the archive holds them, and its hash
# is Ubuntu's word for it.
readonly UBUNTU_KEYS='pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb'
readonly UBUNTU_KEYS_SHA256='36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8'


# --- what it needs ---------------------------------------------------------------------------

need_tools() {
  command -v apt-get >/dev/null || skip 'this machine has no apt-get, and roots are made with it'
  local missing=() log=$PLACE/tools.log
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  command -v slirp4netns >/dev/null || missing+=(slirp4netns)
  [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || missing+=(debian-archive-keyring)
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    skip "apt-get cannot install ${missing[*]} (see $log)"
}

# --- what this machine's package managers are configured for ------------------------------------

# An address of this machine's own loopback, as the namespace sees it.
from_inside() { sed -E 's#//(localhost|127\.[0-9.]+)([:/])#//10.0.2.2\2#g'; }

# The environment of a root: nothing but indexes, proxies and certificates.
settings() {
  package_settings | lines_with -vE '^PIP_(CONFIG_FILE|CACHE_DIR)=' | from_inside
}

# pip's configuration, from all its files, as one; the files and folders that it names, to `$2`.
pip_settings() {
  local python=.venv/bin/python
  [[ -x $python ]] || python=python3
  { as_owner "$python" -m pip config list 2>/dev/null || true; } | python3 -c '
import ast, os, sys
sections = {}
paths = set()
for line in sys.stdin:
    key, _, text = line.strip().partition("=")
    section, _, name = key.rpartition(".")
    value = str(ast.literal_eval(text))
    if section != ":env:" and name != "cache-dir":
        sections.setdefault(section, []).append((name, value))
    for word in value.split():
        path = word.removeprefix("file://").rstrip("/")
        if path != word and os.path.dirname(path) != "/":
            path = os.path.dirname(path)  # An index refers to files beside its own folder.
        if path.startswith("/") and os.path.exists(path):
            paths.add(path)
for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"):
    if os.path.exists(os.environ.get(name, "")):
        paths.add(os.environ[name])
with open(sys.argv[1], "w") as out:
    for section, settings in sections.items():
        print(f"[{section}]", file=out)
        for name, value in settings:
            print(f"{name} =", *value.split("\n"), sep="\n  ", file=out)
with open(sys.argv[2], "w") as out:
    print(*sorted(paths), sep="\n", file=out)
' "$1" "$2"
}

# Proxies, time-outs and the like; not where packages come from, nor hooks of this machine's own.
apt_settings() {
  apt-config dump |
    lines_with -E '^Acquire::(https?|ftp|Check-|Retries|ForceIPv|Max-|Min-|Languages)[^ ]* "[^"]+";' |
    from_inside
}

# The archive that this machine's apt reads Debian or Ubuntu from, else the default.
archive() {
  local label=$1 default=$2 found
  # shellcheck disable=SC2016  # apt-get expands these
  found=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk -v label="$label" '$1 == label { print $2; exit }')
  echo "${found:-$default}"
}

# --- one root --------------------------------------------------------------------------------

# Ends a process that was started here, and with it the namespaces that it holds.
end() {
  [[ -n ${!1} ]] || return 0
  kill -KILL "${!1}" 2>/dev/null || true
  wait "${!1}" 2>/dev/null || true
  printf -v "$1" ''
}

maker='' holder='' network='' root=''
clear_away() {
  end maker
  end holder
  end network
  [[ -z $root ]] || rm -rf --one-file-system "$root"
}

ubuntu_keyring() {
  local mirror=$1 keys=$PLACE/ubuntu-keyring
  [[ ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]] ||
    { echo /usr/share/keyrings/ubuntu-archive-keyring.gpg; return; }
  /usr/lib/apt/apt-helper download-file "${mirror%/}/$UBUNTU_KEYS" "$keys.deb" \
    "SHA256:$UBUNTU_KEYS_SHA256" >"$PLACE/tools.log" 2>&1 && dpkg-deb -x "$keys.deb" "$keys" &&
    echo "$keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
}

# Makes `root`; 77 where the archive cannot be had.
make_root() {
  local name=$1 suite=$2 mirror=$3 security=$4 components=$5 include=$6
  local options=() keyring log=$PLACE/$name.log lines=()
  if [[ $name == debian* ]]; then
    mirror=$(archive Debian "$mirror") security=$(archive Debian-Security "$security")
  else
    mirror=$(archive Ubuntu "$mirror") security=$mirror
  fi
  /usr/lib/apt/apt-helper download-file "${mirror%/}/dists/$suite/InRelease" "$CACHE/release" \
    >"$log" 2>&1 || { say "$name: its archive $mirror cannot be reached"; return 77; }
  if [[ $name == ubuntu* ]]; then
    keyring=$(ubuntu_keyring "$mirror") ||
      { say "$name: the keys of its archive cannot be had"; return 77; }
    options+=(--keyring="$keyring")
  fi
  lines=("deb $mirror $suite ${components//,/ }" "deb $mirror $suite-updates ${components//,/ }"
    "deb $security $suite-security ${components//,/ }")
  apt_settings >"$CACHE/apt.conf"
  printf '%s\n' "${lines[@]}" |
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
      mmdebstrap --mode=root --variant=apt --include="$include" --aptopt="$CACHE/apt.conf" \
      "${options[@]}" "$suite" "$root" - >"$log" 2>&1 &
  maker=$!
  wait "$maker" || { maker=''; tail -n 20 "$log"; say "$name: mmdebstrap failed (see $log)"; return 1; }
  maker=''
}

# Makes a root of a distribution and runs a file of script/ in it, as root: 77 where the archive cannot be
# had, 1 where the file failed.
#   in_root INCLUDE ROW FILE ARGUMENT…     ROW of ROOTS; INCLUDE: packages, with commas
in_root() {
  local include=$1 file=$3 status=0 kept=() cache row
  read -ra row <<<"$2"
  shift 3
  root=$PLACE/root-${row[0]}
  make_root "${row[@]}" "$include" || status=$?
  if ((status == 0)); then
    cache=$CACHE/${row[0]}
    mkdir -p "$cache"/{apt,pip,ccache}
    chmod 1777 "$cache"/{pip,ccache}  # for each user of the root
    cp "$CACHE/loomnet.bundle" "script/$file" "$root/root/"
    cp "$CACHE/pip.conf" "$root/etc/pip.conf"
    echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
    printf '127.0.0.1 localhost fresh\n' >"$root/etc/hosts"
    lines_of kept settings
    setpriv --pdeathsig KILL unshare --mount --pid --net --ipc --uts --fork --kill-child \
      timeout -k 5 "$LIMIT" script/fresh_enter "$root" "$cache" "$CACHE/pip.paths" \
      "${kept[@]}" bash "/root/$file" "$@" &
    holder=$!
    connect
    wait "$holder" || status=1
    holder=''
    end network
  fi
  rm -rf --one-file-system "$root"
  root=''
  return "$status"
}

# The namespace's way to the package archives: TCP, UDP and DNS through this machine's own sockets.
connect() {
  until [[ $(readlink "/proc/$holder/ns/net") != "$(readlink /proc/self/ns/net)" ]]; do
    kill -0 "$holder" 2>/dev/null || return 0
    sleep 0.02
  done
  setpriv --pdeathsig KILL slirp4netns --configure --mtu=65520 "$holder" tap0 \
    >"$PLACE/network.log" 2>&1 &
  # shellcheck disable=SC2034  # `end network` reads it
  network=$!
}

# --- before the first root ----------------------------------------------------------------------

prepare_roots() {
  umask 022
  mkdir -p "$CACHE"
  chmod 700 "$CACHE"
  exec 9>"$PLACE/lock"
  flock -n 9 || { say 'waiting for another script/fresh or script/wheels to end'; flock 9; }
  rm -rf --one-file-system "$PLACE"/root-*  # of a run that was killed
  need_tools
  as_owner git rev-parse HEAD >/dev/null 2>&1 || skip 'this tree is no git clone'
  trap clear_away EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  as_owner git bundle create -q - HEAD >"$CACHE/loomnet.bundle"
  say "the clone is of $(as_owner git log -1 --format='%h (%s)')"
  [[ -z $(as_owner git status --porcelain) ]] || say 'changes that are not committed are not in it'
  pip_settings "$CACHE/pip.conf" "$CACHE/pip.paths"
}
