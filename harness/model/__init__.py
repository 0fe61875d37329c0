"""Pure types of the judge: what a change, a manifest, evidence, a finding and a verdict are."""
