"""The command line: one file per command group.

May import, beside top modules: `client.admin`, `client.dead_letters`, `client.delays`, `client.looks`,
`client.multicast`, `client.publish`, `client.subscribe`, `client.topology`, `core`, `core.lanes`, `local`, `services`.
"""
