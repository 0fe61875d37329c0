"""The program that is left of some files while a change's switch is off.

Constants are propagated through locals, attributes, parameters and return values under the assumption that the
switch is off; statements that cannot be reached then are dropped. What is left of the head is compared with what is
left of the base: the technique is partial evaluation (Jones, Gomard and Sestoft 1993) with conditional constant
propagation (Wegman and Zadeck 1991).
"""
