"""A federation as a folder: its description, its files, and starting and stopping it here.

Start with `folder` (what is where) and `device` (what one device's folder says). `certificates`
makes keys and certificates, `files` the scripts, units and texts; `create` puts them in place.
`rehearsal` starts all of it on this machine and stops it by process id; `registering` tells a
SuperLink who its nodes are. `graph` is for several servers, each with a federation of its own.
"""
