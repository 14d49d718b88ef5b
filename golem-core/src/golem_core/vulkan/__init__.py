"""The Vulkan backend: a graph as one recorded Kompute sequence of plain shaders.

`golem_core.graph.compile` imports `lower` when a device ``vulkan`` is asked for; Kompute (`kp`) is
imported when `lower` opens the device, and nowhere else in golem.
"""
