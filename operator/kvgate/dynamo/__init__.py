"""Reading and patching a DynamoGraphDeployment: pure."""
