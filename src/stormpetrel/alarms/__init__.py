"""From findings to incidents: rules over job records, grouping, whose fault, one line for people. Pure: sees frames only."""
