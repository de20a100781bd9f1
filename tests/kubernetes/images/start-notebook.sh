#!/bin/sh
# JupyterLab for everyone who can reach the pod and knows the token, which is in the log.
exec jupyter lab --ip=0.0.0.0 --port=8888 --no-browser --ServerApp.root_dir="$HOME" "$@"
