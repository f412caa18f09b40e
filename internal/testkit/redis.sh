#!/bin/sh
# Prints the path of a redis-server: $REDIS, the program on the path, or Debian's, downloaded into the folder $1. If
# none is available, it prints one line with the reason and exits with a status other than 0.
set -eu
if [ -n "${REDIS:-}" ]; then echo "$REDIS"; exit; fi
if command -v redis-server; then exit; fi
mkdir -p "$1"
cd "$1"
dir=$(pwd)
if [ ! -x redis-server ]; then
  # redis-server is in the package redis-tools; the package redis-server only adds a service.
  if ! apt-get download redis-tools libjemalloc2 liblua5.1-0 liblzf1 lua-cjson lua-bitop libatomic1 >log 2>&1; then
    echo "page-store: no redis-server on the path, and Debian's packages cannot be downloaded; skipped" >&2
    exit 1
  fi
  for deb in *.deb; do dpkg-deb -x "$deb" root; done
  ln -sf redis-check-rdb root/usr/bin/redis-server # both names are the same program
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$dir/root/usr/lib/$(uname -m)-linux-gnu" \
    "$dir/root/usr/bin/redis-server" >redis-server
  chmod +x redis-server
fi
echo "$dir/redis-server"
