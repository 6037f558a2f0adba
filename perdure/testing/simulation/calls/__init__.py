"""What models of a simulation may call besides plain tools: payments, questions, waits, jobs."""
