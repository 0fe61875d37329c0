"""What several families share: arguments of launches, and device functions that CuTe DSL does not spell."""
