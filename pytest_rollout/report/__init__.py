"""What a run tells its readers: terminal, JUnit, HTML, GitHub and exports."""
