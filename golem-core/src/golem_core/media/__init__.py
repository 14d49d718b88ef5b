"""Sound in and out of files. What needs another library imports it when it is used."""

from __future__ import annotations
