"""Everything of the audit that touches the world: compilers, the disassembler, cubins, caches, folders."""
