"""The rights that programs need on a cluster with access rules, as data, and in the forms of other tools."""
